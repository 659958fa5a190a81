package markup

import (
	"html/template"
	"regexp"
	"strings"
)

// Headings gives the headings of texts levels below the page's own heading, of which none is left out: a reader who goes from
// heading to heading finds the order of the text. Its zero value is ready for the first text of a page.
type Headings struct {
	// open are the levels that the texts gave to the headings in force, each larger than the one before.
	open []byte
}

var headingTags = regexp.MustCompile(`<(/?)h([1-6])([ >])`)

// Below returns cleaned HTML, in which < begins a tag, with other levels.
func (h *Headings) Below(text template.HTML) template.HTML {
	if !strings.Contains(string(text), "<h") {
		return text
	}
	return template.HTML(headingTags.ReplaceAllStringFunc(string(text), func(tag string) string { //nolint:gosec // it is as clean as before
		m := headingTags.FindStringSubmatch(tag)
		if level := m[2][0]; m[1] == "" {
			for len(h.open) > 0 && h.open[len(h.open)-1] >= level {
				h.open = h.open[:len(h.open)-1]
			}
			h.open = append(h.open, level)
		}
		level := min(len(h.open)+1, 6)
		return "<" + m[1] + "h" + string(rune('0'+max(level, 2))) + m[3]
	}))
}
