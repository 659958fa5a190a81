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
