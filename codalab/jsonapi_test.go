package codalab_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// FuzzDocument checks that a decoded document stays the same after it was encoded and decoded again.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{
		`{"data": [{"type": "bundles", "id": "0x1", "attributes": {"uuid": "0x1", "metadata": {"name": "x", "tags": ["a"]}}, "relationships": {"owner": {"data": {"type": "users", "id": "0"}}}}]}`,
		`{"data": {"type": "users", "attributes": null, "relationships": {"groups": {"data": [{"type": "groups", "id": "x"}, null]}}}, "included": [{"type": "x"}], "meta": {"version": "1"}}`,
		`{"data": []}`, `{"data": null}`, `{"data": [null, {}]}`, `{"data": 7}`, `null`, `{"data": {"attributes": "\u0000\ud800", "ATTRIBUTES": 1e999}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var doc codalab.Document
		if json.Unmarshal(body, &doc) != nil {
			return
		}
		objects, err := doc.Objects()
		if err != nil {
			return
		}
		text, err := json.Marshal(codalab.NewDocument(objects))
		if err != nil {
			t.Fatal(err)
		}
		var again codalab.Document
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%s becomes %s: %v", body, text, err)
		}
		same, err := again.Objects()
		if err != nil || len(same) != len(objects) {
			t.Fatalf("%s becomes %s: %v", body, text, err)
		}
		for i, o := range objects {
			if o.Type != same[i].Type || o.ID != same[i].ID || len(o.Relationships) != len(same[i].Relationships) {
				t.Errorf("%+v becomes %+v", o, same[i])
			}
			var one, two codalab.Bundle
			if (o.Decode(&one) == nil) != (same[i].Decode(&two) == nil) || !cmp.Equal(one, two) {
				t.Errorf("%s decodes as %+v, then as %+v", o.Attributes, one, two)
			}
			for name, r := range o.Relationships {
				other := same[i].Relationships[name]
				link, ok := r.Link()
				if link2, ok2 := other.Link(); link != link2 || ok != ok2 || !cmp.Equal(r.Links(), other.Links()) {
					t.Errorf("relationship %q: %s becomes %s", name, r.Data, other.Data)
				}
			}
		}
	})
}

// TestLinksAreReadAsJSON compares links with what encoding/json reads, in spellings that the fast way must leave to it.
func TestLinksAreReadAsJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `null`, `{}`, `[]`, `"x"`, `{"type":"users","id":"0x1"}`, `{"type":"","id":""}`, `{"type": "users", "id": "0x1"}`,
		`{"id":"0x1","type":"users"}`, `{"type":"users","id":"0x1","meta":{}}`, `{"type":"us\u0065rs","id":"0\"1"}`, `{"type":"a","id":"b"`,
		`{"type":"a","id":"b\\"}`, `{"type":"a","id":"b"}}`, `{"type":"a","id":"","id":"b"}`, `{"type":"a","type":"c","id":"b"}`,
	} {
		var want *codalab.Link
		known := json.Unmarshal([]byte(text), &want) == nil && want != nil
		if want == nil || !known {
			want = &codalab.Link{}
		}
		if got, ok := (codalab.Relationship{Data: json.RawMessage(text)}).Link(); ok != known || got != *want {
			t.Errorf("%s is read as %+v, %v instead of %+v, %v", text, got, ok, *want, known)
		}
	}
}
