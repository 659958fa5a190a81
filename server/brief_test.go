package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"

	"github.com/cl-slurm/cl-slurm/server/store"
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

// TestWorksheetHasItsBundlesInPlaceOfItems asks for a worksheet's bundles without its items: they are the same, in the same
// order and as often, whatever is between them.
func TestWorksheetHasItsBundlesInPlaceOfItems(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	home := s.home("alice")
	first := s.upload("first", "1")
	s.call("alice", "POST", "/worksheet-items?uuid="+home, object("worksheet-items", map[string]string{"type": "markup", "value": "between"})).ok()
	private := s.run("true", nil)
	s.share("alice", "worksheet", home, "public", store.PermissionRead)
	s.share("alice", "bundle", first, "public", store.PermissionRead)
	s.share("alice", "bundle", private, "public", store.PermissionNone)
	s.call("alice", "POST", "/worksheets/"+home+"/add-items", map[string]any{"items": []string{first, "0x" + strings.Repeat("0", 32)}, "item_type": "bundle"}).ok()
	path := "/worksheets/" + home + "?include=owner,items,items.bundle,items.bundle.owner&metadata=name"
	for user, sees := range map[string]int{"alice": 2, "bob": 1} {
		with, without := s.get(user, path).ok(), s.get(user, path+"&items=bundles").ok()
		var want []any
		for _, o := range with.value("included").([]any) {
			if bundle := asMap(asMap(asMap(asMap(o)["relationships"])["bundle"])["data"]); asMap(o)["type"] == "worksheet-items" && bundle != nil {
				want = append(want, bundle)
			}
		}
		if diff := cmp.Diff(want, without.value("data", "relationships", "bundles", "data")); diff != "" || len(want) != 4 {
			t.Errorf("%s: %s", user, diff)
		}
		if diff := cmp.Diff(bundlesIn(with, "included"), bundlesIn(without, "included")); diff != "" {
			t.Errorf("%s: %s", user, diff)
		}
		if strings.Contains(without.body, "worksheet-items") || strings.Count(without.body, `"permission_spec":"none"`) != 3-sees {
			t.Errorf("%s: the answer is %s", user, without.body)
		}
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

// TestLongWorksheetHasItsBundlesInOrder lists a worksheet that several goroutines read.
func TestLongWorksheetHasItsBundlesInOrder(t *testing.T) {
	t.Parallel()
	const sent, requests = 600, 2
	s := newSite(t)
	home := s.home("alice")
	var uuids []string
	for range requests {
		var some []string
		for range sent {
			some = append(some, codalab.NewUUID())
		}
		s.call("alice", "POST", "/bundles?worksheet="+home, each(some, func(uuid string) map[string]any {
			return map[string]any{"type": "bundles", "attributes": map[string]any{"uuid": uuid, "bundle_type": "run", "command": "date", "metadata": metadata("run", "run-"+uuid, nil)}}
		})).ok()
		uuids = append(uuids, some...)
	}
	s.share("alice", "worksheet", home, "public", store.PermissionRead)
	s.share("alice", "bundle", uuids[sent], "public", store.PermissionRead)
	for user, sees := range map[string]int{"alice": len(uuids), "bob": 1} {
		got := s.get(user, "/worksheets/"+home+"?include=items,items.bundle,items.bundle.owner&metadata=name&items=bundles").ok()
		included, _ := got.value("included").([]any)
		if len(included) < len(uuids) {
			t.Fatalf("%s gets %d bundles of %d", user, len(included), len(uuids))
		}
		read := 0
		for i, o := range included[:len(uuids)] { // owners follow
			b := asMap(asMap(o)["attributes"])
			if b["uuid"] != uuids[i] {
				t.Fatalf("%s gets %s in place %d, not %s", user, b["uuid"], i, uuids[i])
			}
			if asMap(b["metadata"])["name"] == "run-"+uuids[i] {
				read++
			}
		}
		if read != sees {
			t.Errorf("%s sees %d bundles, not %d", user, read, sees)
		}
	}
}
