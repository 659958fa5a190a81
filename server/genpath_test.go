package server_test

import (
	"net/http"
	"testing"
)

func TestGenpathOfNoFileIsEmpty(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.dataset("d")
	s.put(uuid, "filename=d.zip", zipped(t, "sub/f")).ok()
	queries := []any{}
	for _, genpath := range []string{"/sub/f", "/sub", "/nosuch"} {
		queries = append(queries, map[string]any{"bundle_uuid": uuid, "genpath": genpath})
	}
	a := s.call("alice", http.MethodPost, "/interpret/file-genpaths", map[string]any{"queries": queries}).ok()
	if file, dir, none := a.value("data", 0), a.value("data", 1), a.value("data", 2); file == nil || dir != nil || none != nil {
		t.Errorf("a file: %v, a directory: %v, no such file: %v", file, dir, none)
	}
}
