// Package markup writes what users write, Markdown with HTML in it, as HTML that is safe on a page: nothing of it runs, loads
// from elsewhere or looks like a part of the page, and it is not much longer than the text.
package markup

import (
	"bytes"
	"html/template"
	"regexp"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	render "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Markup writes Markdown, which may have HTML in it, as HTML. It is made by New, and safe for concurrent use.
type Markup struct {
	convert goldmark.Markdown
	tables  tables
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
	tables := newTables()
	return Markup{convert: goldmark.New(
		goldmark.WithExtensions(extension.Linkify, extension.Strikethrough, extension.TaskList, tables),
		goldmark.WithRendererOptions(render.WithUnsafe()),
		goldmark.WithParserOptions(parser.WithInlineParsers(util.Prioritized(formulas{parser.NewContextKey()}, 150))), // before escapes and emphasis
	), tables: tables, clean: clean}
}

// Page returns a Page.
func (m Markup) Page() *Page { return &Page{markup: m, left: atLeast} }

// Page writes the texts of a page, and bounds the HTML of all of them together: a text may name an address of many bytes many
// times. Page is made by Markup.Page, and is for one goroutine.
type Page struct {
	markup Markup
	// left is the number of bytes of HTML that the texts so far leave, and read that of the texts that were read as Markdown.
	left, read int
}

// The HTML of the texts of a page has at most atLeast bytes, and mostTimes as many as the texts. A word in brackets that is a
// link to an address given once is the honest text that grows most, by about 80 bytes.
const (
	atLeast   = 64 << 10
	mostTimes = 16
)

// The most bytes of a text that is read as Markdown, and of all those of a page: while a text is read, each byte of it may take up
// to a kilobyte of memory.
const (
	longestText = 256 << 10
	mostTexts   = 1 << 20
)

// HTML returns a text as HTML. Pictures in it are files of bundles, with addresses below /rest/bundles/UUID/contents/blob/. A text
// that would become too long is shown as it is written.
func (p *Page) HTML(text string) template.HTML {
	p.left += mostTimes * len(text)
	html, ok := "", false
	if len(text) <= min(longestText, mostTexts-p.read) {
		p.read += len(text)
		html, ok = p.markup.html(text, p.left)
	}
	if !ok {
		html = "<p>This text is shown as it is written: it is long, or would become so.</p>\n<pre>" + template.HTMLEscapeString(text) + "</pre>"
	}
	p.left -= len(html)
	return template.HTML(html) //nolint:gosec // it is cleaned, or escaped
}

// html returns a text as HTML; false if that would have more than most bytes.
func (m Markup) html(source string, most int) (string, bool) {
	if takesLong(source) {
		return "", false
	}
	data := []byte(source)
	in := parser.NewContext()
	doc := m.convert.Parser().Parse(text.NewReader(data), parser.WithContext(in))
	if m.tables.tooWide(len(data), in) || !isShort(doc, most) {
		return "", false
	}
	raw, clean := bounded{left: most}, bounded{left: most}
	if err := m.convert.Renderer().Render(&raw, data, doc); err != nil {
		return "", false
	}
	if err := m.clean.SanitizeReaderToWriter(bytes.NewReader(raw.data), &clean); err != nil {
		return "", false
	}
	return string(clean.data), true
}
