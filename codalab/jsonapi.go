package codalab

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Document is a JSON:API document as CodaLab uses it. Data holds one object
// or a list of them.
type Document struct {
	Data     json.RawMessage `json:"data,omitempty"`
	Included []Object        `json:"included,omitempty"`
	Meta     map[string]any  `json:"meta,omitempty"`
}

// Object is one resource of a Document. Attributes are kept as they came;
// Decode gives them a type.
type Object struct {
	Type          string                  `json:"type"`
	ID            string                  `json:"id,omitempty"`
	Attributes    json.RawMessage         `json:"attributes,omitempty"`
	Relationships map[string]Relationship `json:"relationships,omitempty"`
}

// Relationship links an object to others; Data is null, one Link or a list.
type Relationship struct {
	Data json.RawMessage `json:"data"`
}

// Link names another object.
type Link struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// ToOne is the relationship to one object; an empty id means none.
func ToOne(kind, id string) Relationship {
	if id == "" {
		return Relationship{Data: json.RawMessage("null")}
	}
	data, err := json.Marshal(Link{Type: kind, ID: id})
	if err != nil { // two strings always encode
		panic(err)
	}
	return Relationship{Data: data}
}

// ToMany is the relationship to the objects of one type with these ids, in
// order.
func ToMany(kind string, ids []string) Relationship {
	links := make([]Link, 0, len(ids))
	for _, id := range ids {
		links = append(links, Link{Type: kind, ID: id})
	}
	data, err := json.Marshal(links)
	if err != nil { // strings always encode
		panic(err)
	}
	return Relationship{Data: data}
}

// Link returns the one linked object of a relationship, and whether there is
// one.
func (r Relationship) Link() (Link, bool) {
	var link *Link
	if json.Unmarshal(r.Data, &link) != nil || link == nil {
		return Link{}, false
	}
	return *link, true
}

// Links returns the linked objects of a relationship to many.
func (r Relationship) Links() []Link {
	var links []Link
	if json.Unmarshal(r.Data, &links) != nil {
		return nil
	}
	return links
}

// NewObject encodes attributes into an object.
func NewObject(kind, id string, attributes any) (Object, error) {
	data, err := json.Marshal(attributes)
	if err != nil {
		return Object{}, fmt.Errorf("encode %s %s: %w", kind, id, err)
	}
	return Object{Type: kind, ID: id, Attributes: data}, nil
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

// Objects returns a document's data as a list, whether it holds one object or
// several.
func (d Document) Objects() ([]Object, error) {
	data := bytes.TrimSpace(d.Data)
	if len(data) == 0 || bytes.Equal(data, []byte("null")) {
		return nil, nil
	}
	if data[0] == '[' {
		var list []Object
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, fmt.Errorf("decode document: %w", err)
		}
		return list, nil
	}
	var one Object
	if err := json.Unmarshal(data, &one); err != nil {
		return nil, fmt.Errorf("decode document: %w", err)
	}
	return []Object{one}, nil
}

// ListDocument is the document that holds these objects as a list.
func ListDocument(objects []Object) (Document, error) {
	if objects == nil {
		objects = []Object{}
	}
	return document(objects)
}

// OneDocument is the document that holds a single object.
func OneDocument(object Object) (Document, error) { return document(object) }

func document(v any) (Document, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return Document{}, fmt.Errorf("encode document: %w", err)
	}
	return Document{Data: data}, nil
}
