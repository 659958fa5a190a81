package server_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// identities match identifiers of the recorded server with ours, one to one: the ones that stand at
// the same place in an answer. Keys are a kind and an identifier.
type identities struct{ ours, recorded map[[2]string]string }

func newIdentities() identities {
	return identities{map[[2]string]string{}, map[[2]string]string{}}
}

func (ids *identities) clone() identities {
	return identities{maps.Clone(ids.ours), maps.Clone(ids.recorded)}
}

// forgetItems forgets the numbers of worksheets' items. CodaLab's own server numbers the items of a
// worksheet anew when somebody reads it after a change; clients do not keep the numbers.
func (ids *identities) forgetItems() {
	for _, side := range []map[[2]string]string{ids.ours, ids.recorded} {
		for key := range side {
			if key[0] == "worksheet-items" || key[0] == "sort_key" {
				delete(side, key)
			}
		}
	}
}

// match reports whether two identifiers of a kind are the same one's, and remembers it.
func (ids *identities) match(kind, recorded, ours string) bool {
	have, known := ids.ours[[2]string{kind, recorded}]
	back, taken := ids.recorded[[2]string{kind, ours}]
	if known || taken {
		return have == ours && back == recorded
	}
	ids.ours[[2]string{kind, recorded}] = ours
	ids.recorded[[2]string{kind, ours}] = recorded
	return true
}

// someUUID matches identifiers of bundles, worksheets and groups, and prefixes of them.
func someUUID() *regexp.Regexp { return regexp.MustCompile(`0x[0-9a-f]{6,32}`) }

// wholeUUID is the length of an identifier.
const wholeUUID = 34

// inText returns recorded text with our identifiers.
func (ids *identities) inText(text string) string {
	return someUUID().ReplaceAllStringFunc(text, func(id string) string {
		for key, ours := range ids.ours {
			if key[0] == "uuid" && strings.HasPrefix(key[1], id) {
				return ours[:len(id)]
			}
		}
		return id
	})
}

// inRequest is inText for a part of a request, which may have a token of its recording, or the socket
// of a read.
func (ids *identities) inRequest(recording, text string) string {
	for _, part := range []struct{ kind, pattern string }{
		{"token " + recording, `^(Bearer )(token\d+)$`},
		{"socket_id", `(/reply(?:_data)?/)(\d+)`},
	} {
		pattern := regexp.MustCompile(part.pattern)
		text = pattern.ReplaceAllStringFunc(text, func(found string) string {
			m := pattern.FindStringSubmatch(found)
			if ours, ok := ids.ours[[2]string{part.kind, m[2]}]; ok {
				return m[1] + ours
			}
			return found
		})
	}
	return ids.inText(text)
}

// comparison compares one answer.
type comparison struct {
	ids      *identities
	tokens   string // whose tokens the answer has
	exchange string // for replayDifference

	fields    int
	onPurpose []int    // indices in replayDifferences
	wrong     []string // the other differences
}

func (c *comparison) differ(at, stock, ours string) {
	if i := allowed(c.exchange, at, stock, ours); i >= 0 {
		c.onPurpose = append(c.onPurpose, i)
		return
	}
	c.wrong = append(c.wrong, fmt.Sprintf("  %s\n  - %s\n  + %s", at, stock, ours))
}

func (c *comparison) text(at, stock, ours string) {
	c.fields++
	for i, id := range someUUID().FindAllString(stock, -1) {
		if all := someUUID().FindAllString(ours, -1); i < len(all) && len(id) == wholeUUID && len(all[i]) == wholeUUID {
			c.ids.match("uuid", id, all[i])
		}
	}
	if c.ids.inText(stock) != ours {
		c.differ(at, stock, ours)
	}
}

// answer compares an answer; body is ours with the recorded machine's places, and tree what an
// archive should have.
func (c *comparison) answer(e exchange, got reply, body string, tree []entry) {
	c.text("status", strconv.Itoa(e.Status), strconv.Itoa(got.status))
	c.headers(e, got.header)
	var stock, ours any
	switch {
	case got.status != e.Status:
		c.text("body", e.Answer, body)
	case e.header("Content-Type") == "application/json":
		if err := decode(e.Answer, &stock); err != nil {
			c.differ("body", e.Answer, err.Error())
		}
		if err := decode(body, &ours); err != nil {
			c.differ("body", err.Error(), body)
			return
		}
		c.value("", stock, ours)
	case e.header("Content-Encoding") == "gzip":
		text, _, ok := packedText(e.Answer)
		unpacked, err := unzip(got.body)
		if !ok || err != nil {
			c.differ("contents", e.Answer, fmt.Sprint(err, " ", body))
		}
		c.text("contents", text, unpacked)
	case e.header("Content-Type") == "application/gzip":
		c.archive(tree, got.body)
	default:
		c.text("body", e.Answer, body)
	}
}

func decode(text string, to any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return d.Decode(to)
}

func unzip(data []byte) (string, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(zipped)
	return string(text), err
}

func (c *comparison) archive(tree []entry, data []byte) {
	ours, err := unpack(data)
	if err != nil {
		c.differ("contents", "an archive", err.Error())
	}
	var want strings.Builder
	for _, e := range tree {
		if strings.HasSuffix(e.name, "/") {
			fmt.Fprintf(&want, "%s 5 755 \"\"\n", e.name)
		} else {
			fmt.Fprintf(&want, "%s 0 644 %q\n", e.name, e.text)
		}
	}
	c.text("contents", want.String(), ours)
}

// headers compares all headers but those of the connection.
func (c *comparison) headers(e exchange, ours http.Header) {
	names := slices.Collect(maps.Keys(ours))
	for _, h := range e.AnswerHeader {
		names = append(names, http.CanonicalHeaderKey(h[0]))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		switch name {
		case "Server", "Date", "Connection", "Content-Length", "Transfer-Encoding":
			continue
		}
		stock := ""
		for _, h := range e.AnswerHeader {
			if http.CanonicalHeaderKey(h[0]) == name {
				stock = h[1]
			}
		}
		c.text("header "+name, stock, ours.Get(name))
	}
}

// value compares values of JSON.
func (c *comparison) value(at string, stock, ours any) {
	if kind, a, b := c.identifier(at, stock, ours); kind != "" {
		c.fields++
		if !c.ids.match(kind, a, b) {
			c.differ(at, a, b)
		}
		return
	}
	switch stock := stock.(type) {
	case map[string]any:
		if ours, ok := ours.(map[string]any); ok {
			c.object(at, stock, ours)
			return
		}
	case []any:
		if ours, ok := ours.([]any); ok {
			c.list(at, stock, ours)
			return
		}
	case string:
		if ours, ok := ours.(string); ok {
			if !sameTime(at, stock, ours) {
				c.text(at, stock, ours)
				return
			}
			c.fields++
			return
		}
	}
	c.fields++
	a, b := spell(stock), spell(ours)
	if a != b && !sameTime(at, a, b) {
		c.differ(at, a, b)
	}
}

func (c *comparison) list(at string, stock, ours []any) {
	if strings.HasSuffix(c.exchange, " /rest/groups") {
		for _, list := range [][]any{stock, ours} {
			slices.SortFunc(list, func(a, b any) int { return -strings.Compare(groupName(a), groupName(b)) })
		}
	}
	for i := range min(len(stock), len(ours)) {
		c.value(fmt.Sprintf("%s[%d]", at, i), stock[i], ours[i])
	}
	c.fields++
	if len(stock) != len(ours) {
		c.differ(at+" length", spell(stock), spell(ours))
	}
}

// groupName is the name of a group; groups come in any order.
func groupName(group any) string {
	o, _ := group.(map[string]any)
	attributes, _ := o["attributes"].(map[string]any)
	return fmt.Sprint(attributes["name"])
}

func (c *comparison) object(at string, stock, ours map[string]any) {
	keys := slices.Collect(maps.Keys(stock))
	for key := range ours {
		if _, ok := stock[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		a, inStock := stock[key]
		b, inOurs := ours[key]
		where := at + "." + key
		if key == "id" {
			where = fmt.Sprint(at, ".id of ", stock["type"])
		}
		switch {
		case key == "included" && at == "":
			c.included(a, b)
		case !inStock:
			c.differ(where, "<none>", spell(b))
		case !inOurs:
			c.differ(where, spell(a), "<none>")
		default:
			c.value(where, a, b)
		}
	}
}

// included compares the objects of a document that the others refer to. Clients find them by type and
// id, so that their order means nothing.
func (c *comparison) included(stock, ours any) {
	a, _ := stock.([]any)
	b, _ := ours.([]any)
	byID := map[string]any{}
	for _, one := range b {
		o, _ := one.(map[string]any)
		byID[fmt.Sprint(o["type"], " ", o["id"])] = one
	}
	for i, one := range a {
		at := fmt.Sprintf(".included[%d]", i)
		o, _ := one.(map[string]any)
		kind, id := fmt.Sprint(o["type"]), fmt.Sprint(o["id"])
		key := kind + " " + c.ids.inText(id)
		if ours, ok := c.ids.ours[[2]string{kind, id}]; ok {
			key = kind + " " + ours
		}
		if match, ok := byID[key]; ok {
			c.value(at, one, match)
		} else {
			c.differ(at, spell(one), "<none>")
		}
		delete(byID, key)
	}
	for _, one := range byID {
		c.differ(".included", "<none>", spell(one))
	}
}

func spell(v any) string {
	if n, ok := v.(json.Number); ok {
		return n.String()
	}
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(out.String())
}

// identifier returns the kind of numbered identifiers and tokens; an empty one for other values.
func (c *comparison) identifier(at string, stock, ours any) (kind, a, b string) {
	for _, one := range []struct{ at, kind string }{
		{`id of worksheet-items$`, "worksheet-items"},
		{`\.last_item_id$`, "worksheet-items"},
		{`bundle_infos\[\d+\]\.id of <nil>$`, "worksheet-items"},
		{`id of worksheet-permissions$`, "worksheet-permissions"},
		{`group_permissions\[\d+\]\.id of <nil>$`, "interpreted permissions"},
		{`id of bundle-permissions$`, "bundle-permissions"},
		{`\.sort_key$`, "sort_key"},
		{`\.sort_keys\[\d+\]$`, "sort_key"},
		{`\.socket_id$`, "socket_id"},
		{`(access|refresh)_token$`, "token " + c.tokens},
	} {
		if !regexp.MustCompile(one.at).MatchString(at) {
			continue
		}
		a, b = strings.Trim(spell(stock), `"`), strings.Trim(spell(ours), `"`)
		sameType := fmt.Sprintf("%T", stock) == fmt.Sprintf("%T", ours)
		if regexp.MustCompile(`^(\d+|token\d+)$`).MatchString(a) && sameType {
			return one.kind, a, b
		}
	}
	return "", "", ""
}

// sameTime reports whether two times of a key that has one are the same in form, and in value to the
// precision of the recorded times.
func sameTime(at, stock, ours string) bool {
	if !regexp.MustCompile(`\.(created|last_updated|started|checkin_time|date_\w+)$`).MatchString(at) || len(stock) != len(ours) {
		return false
	}
	const most = 2 * time.Second
	if a, err := strconv.ParseInt(stock, 10, 64); err == nil {
		b, err := strconv.ParseInt(ours, 10, 64)
		return err == nil && math.Abs(float64(a-b)) <= most.Seconds()
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.ANSIC} {
		a, err := time.Parse(layout, stock)
		b, err2 := time.Parse(layout, ours)
		if err == nil && err2 == nil {
			return a.Sub(b).Abs() <= most && strings.HasSuffix(stock, "+00:00") == strings.HasSuffix(ours, "+00:00")
		}
	}
	return false
}
