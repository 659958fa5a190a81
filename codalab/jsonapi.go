package codalab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Document is a JSON:API document as CodaLab uses it. Data holds one object or a list of
// objects.
type Document struct {
	Data     json.RawMessage `json:"data,omitempty"`
	Included []Object        `json:"included,omitempty"`
	Meta     map[string]any  `json:"meta,omitempty"`
}

// Object is one resource of a Document. Attributes stay undecoded until Decode.
type Object struct {
	Type          string                  `json:"type"`
	ID            string                  `json:"id,omitempty"`
	Attributes    json.RawMessage         `json:"attributes,omitempty"`
	Relationships map[string]Relationship `json:"relationships,omitempty"`
	// Meta is what a server tells about the object besides; nil for nothing.
	Meta any `json:"meta,omitempty"`
}

// Relationship links an object to others; Data is null, one Link or a list of links.
type Relationship struct {
	Data json.RawMessage `json:"data"`
}

// Link names another object.
type Link struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// NewObject encodes attributes into an object. It panics if encoding/json cannot encode them,
// which is a mistake in the program.
func NewObject(kind, id string, attributes any) Object {
	return Object{Type: kind, ID: id, Attributes: mustEncode(attributes)}
}

// ToOne is the relationship to one object; an empty id means none.
func ToOne(kind, id string) Relationship {
	if id == "" {
		return Relationship{Data: json.RawMessage("null")}
	}
	return Relationship{Data: mustEncode(Link{Type: kind, ID: id})}
}

// ToMany is the relationship to the objects of one type with these ids, in order.
func ToMany(kind string, ids []string) Relationship {
	links := make([]Link, 0, len(ids))
	for _, id := range ids {
		links = append(links, Link{Type: kind, ID: id})
	}
	return Relationship{Data: mustEncode(links)}
}

// NewDocument is the document that holds data: an Object, or a list of objects.
func NewDocument[T Object | []Object](data T) Document {
	if list, ok := any(data).([]Object); ok && list == nil {
		return Document{Data: json.RawMessage("[]")}
	}
	return Document{Data: mustEncode(data)}
}

// AppendDocument appends to b the document with this data, an object or a list of objects, and returns it. It writes the bytes
// that encoding/json would write for the members data, included and meta, and reads none of the objects' attributes again,
// which is most of the time of a long list. Included is left out if it is empty. It panics as NewObject does.
func AppendDocument(b []byte, data any, included []Object, meta any) []byte {
	size := 0
	for _, o := range included {
		size += len(o.Attributes) + len(o.ID)
	}
	const others = 120 // bytes of an object beside these, about
	b = append(slices.Grow(b, size+len(included)*others), `{"data":`...)
	switch data := data.(type) {
	case Object:
		b = data.appendTo(b)
	case []Object:
		b = appendObjects(b, data)
	default:
		b = append(b, mustEncode(data)...)
	}
	if len(included) > 0 {
		b = appendObjects(append(b, `,"included":`...), included)
	}
	b = append(append(b, `,"meta":`...), mustEncode(meta)...)
	return append(b, '}')
}

func appendObjects(b []byte, list []Object) []byte {
	if list == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, o := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = o.appendTo(b)
	}
	return append(b, ']')
}

func (o Object) appendTo(b []byte) []byte {
	b = append(append(b, `{"type":`...), mustEncode(o.Type)...)
	if o.ID != "" {
		b = append(append(b, `,"id":`...), mustEncode(o.ID)...)
	}
	if len(o.Attributes) > 0 {
		b = append(append(b, `,"attributes":`...), o.Attributes...)
	}
	if len(o.Relationships) > 0 {
		between := `,"relationships":{`
		for _, name := range slices.Sorted(maps.Keys(o.Relationships)) {
			b = append(append(b, between...), mustEncode(name)...)
			b = append(append(append(b, `:{"data":`...), o.Relationships[name].Data...), '}')
			between = ","
		}
		b = append(b, '}')
	}
	if o.Meta != nil {
		b = append(append(b, `,"meta":`...), mustEncode(o.Meta)...)
	}
	return append(b, '}')
}

func mustEncode(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// Link returns the one linked object of a relationship, and whether there is one.
func (r Relationship) Link() (Link, bool) {
	if link, ok := plainLink(string(r.Data)); ok || len(r.Data) == 0 {
		return link, ok
	}
	var link *Link
	if json.Unmarshal(r.Data, &link) != nil || link == nil {
		return Link{}, false
	}
	return *link, true
}

// plainLink reads a link as this package's servers write it, without spaces and escapes: a worksheet has tens of thousands of
// links, and encoding/json takes most of the time of a list for them.
func plainLink(data string) (Link, bool) {
	rest, begins := strings.CutPrefix(data, `{"type":"`)
	kind, rest, ok := strings.Cut(rest, `","id":"`)
	id, end, closed := strings.Cut(rest, `"`)
	if !begins || !ok || !closed || end != "}" || strings.ContainsAny(kind+id, `"\\`) {
		return Link{}, false
	}
	return Link{Type: kind, ID: id}, true
}

// Links returns the linked objects of a relationship to many.
func (r Relationship) Links() []Link {
	if links, ok := plainLinks(string(r.Data)); ok {
		return links
	}
	var links []Link
	if json.Unmarshal(r.Data, &links) != nil {
		return nil
	}
	return links
}

// plainLinks is plainLink for a list.
func plainLinks(data string) ([]Link, bool) {
	inner, begins := strings.CutPrefix(data, "[{")
	inner, ends := strings.CutSuffix(inner, "}]")
	if !begins || !ends {
		return nil, false
	}
	links := make([]Link, 0, strings.Count(inner, "},{")+1)
	for text := range strings.SplitSeq(inner, "},{") {
		link, ok := plainLink("{" + text + "}")
		if !ok {
			return nil, false
		}
		links = append(links, link)
	}
	return links, true
}

// Decode reads an object's attributes into v.
func (o Object) Decode(v any) error {
	if len(o.Attributes) == 0 {
		return nil
	}
	if err := json.Unmarshal(o.Attributes, v); err != nil {
		return fmt.Errorf("decode %s %s: %w", o.Type, o.ID, err)
	}
	return nil
}

// Objects returns a document's data as a list, whether it holds one object or several.
func (d Document) Objects() ([]Object, error) {
	data := bytes.TrimSpace(d.Data)
	if len(data) > 0 && data[0] == '{' {
		data = bytes.Join([][]byte{[]byte("["), data, []byte("]")}, nil)
	}
	var list []Object
	if len(data) == 0 {
		return list, nil
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("decode document: %w", err)
	}
	return list, nil
}
