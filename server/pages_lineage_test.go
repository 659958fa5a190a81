package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// The graph of a bundle has what its reader may read, and tells nothing of the rest.
func TestGraphOfABundleIsForItsReader(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	in := func(path, uuid string) codalab.Dependency {
		return codalab.Dependency{ChildPath: path, ParentUUID: uuid}
	}
	hidden, data := s.upload("hidden-data", "1,2\n"), s.upload("open-data", "3,4\n")
	train := s.run("train", map[string]any{"name": "train-it"}, in("first", hidden), in("</code><script>alert(1)</script>", data))
	eval := s.run("eval", map[string]any{"name": "eval-it"}, in("model", train))
	private := s.run("private", map[string]any{"name": "private-use"}, in("model", train))
	for _, uuid := range []string{data, train, eval} {
		s.share("alice", "bundle", uuid, "public", store.PermissionRead)
	}
	for _, uuid := range []string{hidden, private} {
		s.share("alice", "bundle", uuid, "public", store.PermissionNone)
	}
	a := s.browse(t, "alice")
	page := a.shows(t, "/bundles/"+train, http.StatusOK, `<svg viewBox=`, `<title>hidden-data, dataset, ready</title>`, ">private-use</text>", ">open-data</bdi>", `<code>first</code>`)
	if strings.Contains(page, "<script>alert") {
		t.Errorf("a path of an input runs: %s", page)
	}
	b := s.browse(t, "bob")
	page = b.shows(t, "/bundles/"+train, http.StatusOK, `<title>open-data, dataset, ready</title>`, ">eval-it</text>", ">not readable</text>")
	if strings.Contains(page, "hidden-data") || strings.Contains(page, "private-use") || strings.Contains(page, private) {
		t.Errorf("bob sees %s", page)
	}
	if alone := b.shows(t, "/bundles/"+s.upload("alone", "x"), http.StatusNotFound); strings.Contains(alone, "<svg") {
		t.Errorf("bob sees %s", alone)
	}
}

// A data set that very many bundles use has a page as quick as that of any other.
func TestGraphOfMuchUsedDataIsSmall(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := s.upload("popular", "1\n")
	var list []any
	for range 200 {
		list = append(list, map[string]any{"type": "bundles", "attributes": map[string]any{
			"bundle_type": "run", "command": "x", "metadata": metadata("run", "user-of-it", nil),
			"dependencies": []any{map[string]string{"child_path": "in", "parent_uuid": data, "parent_path": ""}},
		}})
	}
	s.call("alice", "POST", "/bundles?worksheet="+s.home("alice"), map[string]any{"data": list}).ok()
	page := s.browse(t, "alice").shows(t, "/bundles/"+data, http.StatusOK, "and 192 more", `href="/runs?q=dependency%3D`+data+`"`)
	if n := strings.Count(page, ">user-of-it</text>"); n != 8 {
		t.Errorf("the graph has %d of them", n)
	}
}
