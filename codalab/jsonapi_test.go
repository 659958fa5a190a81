package codalab_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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

// TestListsOfLinksAreReadAsJSON is TestLinksAreReadAsJSON for lists.
func TestListsOfLinksAreReadAsJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `null`, `[]`, `[{}]`, `[null]`, `[{"type":"a","id":"b"}]`, `[{"type":"a","id":"b"},{"type":"c","id":"d"}]`,
		`[{"type":"a","id":"b"}, {"type":"c","id":"d"}]`, `[{"type":"a","id":"b"},null]`, `[{"type":"a","id":"},{"},{"type":"c","id":"d"}]`,
		`[{"type":"a","id":"b"},]`, `[{"type":"a","id":"b"},{"type":"c","id":"d"}`, `{"type":"a","id":"b"}`, `[{"type":"a","id":"b"}},{{"type":"c","id":"d"}]`,
		`[{"type":"a","id":"b","meta":[{}]}]`, `[{"id":"b","type":"a"}]`, `[{"type":"a","id":"b"},{"type":"c","id":7}]`,
	} {
		var want []codalab.Link
		if json.Unmarshal([]byte(text), &want) != nil {
			want = nil
		}
		if got := (codalab.Relationship{Data: json.RawMessage(text)}).Links(); !cmp.Equal(got, want, cmpopts.EquateEmpty()) {
			t.Errorf("%s is read as %+v instead of %+v", text, got, want)
		}
	}
}

// TestDocumentIsWrittenAsEncodingJSONWritesIt compares the bytes.
func TestDocumentIsWrittenAsEncodingJSONWritesIt(t *testing.T) {
	t.Parallel()
	owned := codalab.NewObject("bundles", "0x<1>", codalab.Bundle{UUID: "0x1", Metadata: codalab.Metadata{"name": "a\u2028\"b", "tags": []string{}}})
	owned.Relationships = map[string]codalab.Relationship{
		"owner": codalab.ToOne("users", "7"), "none": codalab.ToOne("users", ""), "<children>": codalab.ToMany("bundles", []string{"0x2", "0x3"}),
		"group_permissions": codalab.ToMany("bundle-permissions", nil),
	}
	bare := codalab.Object{Type: "a\xffb", Relationships: map[string]codalab.Relationship{}}
	meta := map[string]any{"version": "1", "warnings": []string{"<"}}
	for _, data := range []any{owned, bare, []codalab.Object{owned, bare}, []codalab.Object{}, []codalab.Object(nil), nil, 7, map[string]string{"a": "b"}} {
		for _, included := range [][]codalab.Object{nil, {}, {owned}, {bare, owned, bare}} {
			whole := map[string]any{"data": data, "meta": meta}
			if len(included) > 0 {
				whole["included"] = included
			}
			want, err := json.Marshal(whole)
			if err != nil {
				t.Fatal(err)
			}
			if got := codalab.AppendDocument([]byte("x"), data, included, meta); string(got) != "x"+string(want) {
				t.Errorf("%s\ninstead of\n%s", got, want)
			}
		}
	}
}
