package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestListsCanBeBrief asks for a worksheet, a search and a bundle with some keys of metadata: the answers have the same
// bundles, without the rest of their metadata and what is computed from it. Without the parameter nothing changes.
func TestListsCanBeBrief(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.upload("first", "1")
	s.run("true", nil)
	home := s.home("alice")
	for _, at := range []struct{ path, list string }{
		{"/worksheets/" + home + "?include=owner,items,items.bundle,items.bundle.owner", "included"},
		{"/bundles?include=owner&keywords=.mine", "data"},
	} {
		whole, brief := bundlesIn(s.get("alice", at.path).ok(), at.list), bundlesIn(s.get("alice", at.path+"&metadata=name,created").ok(), at.list)
		if len(whole) != 2 || len(brief) != 2 {
			t.Fatalf("%s: %d bundles, and %d brief ones", at.path, len(whole), len(brief))
		}
		for i, b := range whole {
			if b["state_details"] == "" || len(asMap(b["metadata"])) < 5 {
				t.Errorf("%s: the whole bundle is %v", at.path, b)
			}
			metadata := asMap(b["metadata"])
			b["metadata"] = map[string]any{"name": metadata["name"], "created": metadata["created"]}
			b["args"] = nil
			delete(b, "state_details")
			if diff := cmp.Diff(b, brief[i]); diff != "" {
				t.Errorf("%s: %s", at.path, diff)
			}
		}
	}
	for _, keys := range []string{"name,", "na'me", "Name", strings.Repeat("a,", 70) + "a"} {
		s.get("alice", "/bundles?keywords=.mine&metadata="+keys).is(http.StatusBadRequest)
	}
}

// bundlesIn are the attributes of the bundles in a list of an answer, by their names.
func bundlesIn(a answer, list string) []map[string]any {
	objects, _ := a.value(list).([]any)
	var bundles []map[string]any
	for _, o := range objects {
		if asMap(o)["type"] == "bundles" {
			bundles = append(bundles, asMap(asMap(o)["attributes"]))
		}
	}
	slices.SortFunc(bundles, func(a, b map[string]any) int {
		return strings.Compare(asMap(a["metadata"])["name"].(string), asMap(b["metadata"])["name"].(string))
	})
	return bundles
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}
