package export

import (
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// relink makes the addresses in cleaned HTML those of the archive, or else those of the server.
func (r *renderer) relink(text string) (string, error) {
	var out strings.Builder
	tokens := html.NewTokenizer(strings.NewReader(text))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			if err := tokens.Err(); err != io.EOF { //nolint:errorlint // as package html returns it
				return "", fmt.Errorf("read markup: %w", err)
			}
			return out.String(), nil
		case html.StartTagToken, html.SelfClosingTagToken:
			out.WriteString(r.relinkTag(tokens.Token()))
		default:
			out.Write(tokens.Raw())
		}
	}
}

func (r *renderer) relinkTag(tag html.Token) string {
	r.formulas = r.formulas || slices.Contains(tag.Attr, html.Attribute{Key: "class", Val: "math"})
	kept := tag.Attr[:0]
	for _, a := range tag.Attr {
		switch {
		case tag.Data == "img" && a.Key == "src":
			local, ok := r.local(a.Val)
			if !ok {
				continue // a page from the disk loads nothing from elsewhere
			}
			a.Val = local
		case a.Key == "href":
			if local, ok := r.local(a.Val); ok {
				a.Val = local
			} else {
				a.Val = r.onServer(a.Val)
			}
		}
		kept = append(kept, a)
	}
	tag.Attr = kept
	return tag.String()
}

// local returns the address in the archive of a file of a bundle with this address on the server.
func (r *renderer) local(href string) (string, bool) {
	u, err := url.Parse(href)
	if err != nil || u.Host != "" || u.Scheme != "" {
		return "", false
	}
	rest, ok := strings.CutPrefix(u.Path, "/rest/bundles/")
	uuid, subpath, found := strings.Cut(rest, "/contents/blob")
	if !ok || !found {
		return "", false
	}
	c := r.contentsOf(uuid)
	if c == nil {
		return "", false
	}
	return address(joined(*c, inside(subpath))), true
}

// inside is a path in a bundle without what would lead out of it.
func inside(subpath string) string { return strings.TrimPrefix(path.Clean("/"+subpath), "/") }

// onServer returns the address on the server of one that is written on the worksheet.
func (r *renderer) onServer(href string) string {
	base, err := url.Parse(r.Server + "/worksheets/" + r.Worksheet.UUID)
	if err != nil {
		return href
	}
	to, err := base.Parse(href)
	if err != nil || strings.HasPrefix(href, "#") {
		return href
	}
	return to.String()
}
