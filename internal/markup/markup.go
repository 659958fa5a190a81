// Package markup writes what users write, Markdown with HTML in it, as HTML that is safe on a page: nothing of it runs, loads
// from elsewhere or looks like a part of the page.
package markup

import (
	"bytes"
	"html/template"
	"regexp"
	"strings"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	render "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/util"
)

// Markup writes Markdown, which may have HTML in it, as HTML. It is made by New, and safe for concurrent use.
type Markup struct {
	convert goldmark.Markdown
	clean   *bluemonday.Policy
}

// New returns a Markup.
func New() Markup {
	clean := bluemonday.NewPolicy()
	clean.AllowElements(
		"h1", "h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "blockquote", "pre", "code", "kbd", "samp", "var", "em", "strong", "b", "i", "u", "s", "del", "ins",
		"sub", "sup", "small", "mark", "abbr", "cite", "q", "dl", "dt", "dd", "div", "span", "center", "figure", "figcaption", "details", "summary",
	)
	clean.AllowLists()
	clean.AllowTables()
	// A picture is a file of a bundle. Any other address would make its reader's browser send a request that the reader has
	// not wished, in the reader's name or to another site.
	clean.AllowAttrs("src").Matching(regexp.MustCompile(`^/rest/bundles/0x[0-9a-f]{32}/contents/blob/[^?#]*$`)).OnElements("img")
	clean.AllowAttrs("alt", "width", "height").OnElements("img")
	clean.AllowAttrs("class").Matching(regexp.MustCompile(`^math$`)).OnElements("span") // a formula
	clean.AllowAttrs("title").Globally()                                                // and no id, name or class, which belong to the page
	clean.AllowAttrs("href").OnElements("a")
	clean.AllowStandardURLs()
	clean.AddTargetBlankToFullyQualifiedLinks(true)
	clean.RequireNoReferrerOnLinks(true)
	return Markup{convert: goldmark.New(
		goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(render.WithUnsafe()),
		goldmark.WithParserOptions(parser.WithInlineParsers(util.Prioritized(formulas{parser.NewContextKey()}, 150))), // before escapes and emphasis
	), clean: clean}
}

// deepestQuote bounds quotes in quotes, whose time grows with the square of their depth.
const deepestQuote = 200

// HTML returns a text as HTML. Pictures in it are files of bundles, with addresses below /rest/bundles/UUID/contents/blob/.
func (m Markup) HTML(text string) template.HTML {
	var out bytes.Buffer
	if strings.Contains(strings.ReplaceAll(text, " ", ""), strings.Repeat(">", deepestQuote)) {
		return template.HTML("<pre>" + template.HTMLEscapeString(text) + "</pre>") //nolint:gosec // it is escaped
	}
	if err := m.convert.Convert([]byte(text), &out); err != nil {
		return template.HTML("<pre>" + template.HTMLEscapeString(text) + "</pre>") //nolint:gosec // it is escaped
	}
	return template.HTML(m.clean.SanitizeBytes(out.Bytes())) //nolint:gosec // it is cleaned
}
