package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestMakeCopiesItsDependencies(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file, tree := s.upload("file", "text"), s.dataset("tree")
	s.put(tree, "filename=tree.tar.gz", tarGz(t, map[string]string{"sub/f": "inner", "top": "x"})).ok()
	dep := func(key, uuid, path string) codalab.Dependency {
		return codalab.Dependency{ChildPath: key, ParentUUID: uuid, ParentPath: path}
	}
	for name, test := range map[string]struct {
		deps []codalab.Dependency
		want string // the entries of the archive, or the text of a file
		size int64
		// entries of the contents
		entries int64
	}{
		"several":   {[]codalab.Dependency{dep("a", file, ""), dep("b", tree, "sub"), dep("deep/c", tree, "sub/f")}, "./ ./a ./b/ ./b/f ./deep/ ./deep/c", 3*4096 + 14, 6},
		"one file":  {[]codalab.Dependency{dep("", file, "")}, "text", 4, 1},
		"one tree":  {[]codalab.Dependency{dep("", tree, "")}, "./ ./sub/ ./sub/f ./top", 2*4096 + 6, 4},
		"under key": {[]codalab.Dependency{dep("k", tree, "sub/f")}, "./ ./k", 4096 + 5, 2},
	} {
		before := s.diskUsed()
		uuid := s.create("make", "made", "", nil, test.deps...).ok().text("data", 0, "id")
		b := s.await(uuid, codalab.StateReady, codalab.StateFailed)
		a := s.get("alice", "/bundles/"+uuid+"/contents/blob/").ok()
		got := a.body
		if a.header.Get("Target-Type") == "directory" {
			got = strings.Join(entries(t, got), " ")
		}
		if got != test.want || b.Metadata.Int("data_size") != test.size || s.diskUsed() != before+test.size+test.entries*codalab.BlockSize {
			t.Errorf("%s: %q, %v", name, got, b.Metadata)
		}
		s.call("alice", http.MethodDelete, "/bundles?force=1", map[string]any{"data": []any{map[string]string{"type": "bundles", "id": uuid}}}).ok()
	}
	if got := s.get("alice", "/bundles/"+tree+"/contents/blob/sub/f").ok().body; got != "inner" {
		t.Errorf("the parent has %q", got)
	}
}

func TestMakeThatCannotBeMadeFails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file, large := s.upload("file", "text"), s.upload("large", strings.Repeat("x", 600<<10))
	failed := s.dataset("failed")
	s.put(failed, "filename=x.tar.gz", "no archive").is(http.StatusBadRequest)
	for want, deps := range map[string][]codalab.Dependency{
		"Invalid dependency " + file + "/nosuch": {{ChildPath: "a", ParentUUID: file, ParentPath: "nosuch"}},
		"Invalid dependency " + failed:           {{ChildPath: "a", ParentUUID: failed}},
		"user disk quota exceeded":               {{ChildPath: "a", ParentUUID: large}},
		"it is there already":                    {{ChildPath: "a", ParentUUID: file}, {ChildPath: ".", ParentUUID: file}},
	} {
		uuid := s.create("make", "made", "", map[string]any{"allow_failed_dependencies": true}, deps...).ok().text("data", 0, "id")
		if b := s.await(uuid, codalab.StateReady, codalab.StateFailed); !strings.Contains(b.Metadata.String("failure_message"), want) {
			t.Errorf("%v, want %s", b.Metadata, want)
		}
	}
	s.create("make", "made", "", nil, codalab.Dependency{ChildPath: "a", ParentUUID: "0x" + strings.Repeat("1", 32)}).says(http.StatusForbidden, "(have none, need read)")
	s.create("make", "made", "", nil, codalab.Dependency{ChildPath: "../a", ParentUUID: file}).says(http.StatusBadRequest, "leads out")
	s.create("make", "made", "", nil, codalab.Dependency{ChildPath: "/a", ParentUUID: file}).says(http.StatusBadRequest, "Invalid key for dependency: /a")
	if n, err := s.store.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("%d directories were left over, %v", n, err)
	}
}

// TestMakeIsMadeAfterACrash begins with a bundle in the state in which a crash leaves it.
func TestMakeIsMadeAfterACrash(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := s.upload("file", "text")
	uuid := s.create("make", "made", "", nil, codalab.Dependency{ParentUUID: file}).ok().text("data", 0, "id")
	s.await(uuid, codalab.StateReady)
	_, err := s.store.Change(t.Context(), uuid, func(b *store.Bundle) error {
		b.State, b.Contents = codalab.StateMaking, ""
		return nil
	})
	must(t, err)
	s.start()
	s.await(uuid, codalab.StateReady)
	if diff := cmp.Diff("text", s.get("alice", "/bundles/"+uuid+"/contents/blob/").ok().body); diff != "" {
		t.Error(diff)
	}
}
