package server_test

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// A search that begins after an upload or the end of a run finds its values, in whatever way the contents came.
func TestValuesAreFoundAsSoonAsTheContentsAreThere(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDisk)
	tree := s.dataset("tree")
	s.put(tree, "filename=tree.tar.gz&unpack=1", tarGz(t, map[string]string{"out/stats.json": `{"acc": 0.7}`, "log.csv": "step,loss\n1,0.5\n2,0.25\n"})).ok()
	if got := s.search("alice", "bundles", "/out/stats.json:acc>0.5").names(); got != "tree" {
		t.Errorf("an archive: %q", got)
	}
	if got := s.search("alice", "bundles", "/log.csv:-1:loss=0.25").names(); got != "tree" {
		t.Errorf("the last row: %q", got)
	}
	s.put(s.dataset("stats.json"), "filename=stats.json&unpack=0", `{"acc": 0.9}`).ok()
	if got := s.search("alice", "bundles", "/:acc=.sort").names(); got != "stats.json" {
		t.Errorf("a file: %q", got)
	}
	uuid := s.run("train", cpuQueue)
	w := s.sharing()
	place := *w.told(codalab.MessageRun).Bundle.Location
	w.startBundle(uuid)
	leaves(t, place, map[string]string{"out/stats.json": `{"acc": 0.8}`})
	w.finalizes(uuid)
	s.await(uuid, codalab.StateReady)
	if got := s.search("alice", "bundles", "/out/stats.json:acc=.sort-").names(); got != "job tree" {
		t.Errorf("a run on the shared disk: %q", got)
	}
	s.call("alice", "DELETE", "/bundles", map[string]any{"data": []any{map[string]string{"type": "bundles", "id": uuid}}}).ok()
	if got := s.search("alice", "bundles", "/out/stats.json:acc").names(); got != "tree" {
		t.Errorf("after its removal: %q", got)
	}
}

func TestSearchesByValuesTellNothingOfUnreadableBundles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	secret, open := s.dataset("secret"), s.dataset("open")
	s.put(secret, "filename=s.tar.gz&unpack=1", tarGz(t, map[string]string{"s.json": `{"acc": 0.99}`})).ok()
	s.put(open, "filename=o.tar.gz&unpack=1", tarGz(t, map[string]string{"s.json": `{"acc": 0.5}`})).ok()
	s.share("alice", "bundle", open, "public", store.PermissionRead)
	for _, words := range []string{"/s.json:acc", "/s.json:acc=.sort-", "/s.json:acc>0", "/s.json:acc!=7"} {
		if got := s.search("bob", "bundles", words).names(); got != "open" {
			t.Errorf("%s: %q", words, got)
		}
	}
	if got := s.search("bob", "bundles", "/s.json:acc>0.9").names(); got != "" {
		t.Errorf("found %q", got)
	}
	if a := s.search("bob", "bundles", "/s.json:acc>0.9 .count").ok(); !strings.Contains(a.body, `"result":0`) {
		t.Errorf("counted %s", a.body)
	}
}

func TestSearchesWithMisspeltKeywordsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.upload("first", "1")
	for words, want := range map[string]string{
		"tag=x": "There is no key tag to search by; did you mean tags?", "statee=failed .count": "There is no key statee to search by; did you mean state?",
		"acc=.sort": "There is no key acc to search by; cl help search lists the keys.", "owner=.sort": "Cannot sort by owner",
		"loss<0.3": "loss is no number that < can compare", "state=faild": `There is no state "faild"; did you mean failed?`,
	} {
		s.search("alice", "bundles", words).says(400, want)
	}
	for _, words := range []string{"nosuch", "tags=x", ".tar.gz", "state=failed", ".limit=0", "request_queue=gpu"} {
		if got := s.search("alice", "bundles", words).names(); got != "" {
			t.Errorf("%s: %q", words, got)
		}
	}
}
