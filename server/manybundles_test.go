package server_test

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// newProxiedSite is a site whose database is reached through a proxy.
func newProxiedSite(t *testing.T) (*site, *testenv.Proxy) {
	t.Helper()
	p := testenv.PostgresProxy(t)
	return newSiteAt(t, filepath.Join(t.TempDir(), "data"), p.URL), p
}

// each returns the objects of a request about many bundles.
func each(uuids []string, one func(uuid string) map[string]any) any {
	var data []any
	for _, uuid := range uuids {
		data = append(data, one(uuid))
	}
	return map[string]any{"data": data}
}

// Each request is about 300 bundles. A statement is a piece or some more, and a transaction changes 50 bundles.
func TestRequestAboutManyBundlesMakesFewStatements(t *testing.T) {
	t.Parallel()
	const bundles, most = 300, 250
	s, p := newProxiedSite(t)
	home := s.home("alice")
	var uuids []string
	for range bundles {
		uuids = append(uuids, codalab.NewUUID())
	}
	parent := s.dataset("parent")
	run := func(uuid string) map[string]any {
		return map[string]any{"type": "bundles", "attributes": map[string]any{
			"uuid": uuid, "bundle_type": "run", "command": "date", "metadata": metadata("run", "run", nil),
			"dependencies": []any{map[string]any{"child_path": "in", "parent_uuid": parent, "parent_path": ""}},
		}}
	}
	edited := func(uuid string) map[string]any {
		return map[string]any{"type": "bundles", "id": uuid, "attributes": map[string]any{"metadata": map[string]any{"tags": []string{"new"}}}}
	}
	shared := func(uuid string) map[string]any {
		return map[string]any{"type": "bundle-permissions", "attributes": map[string]any{"permission": 1}, "relationships": map[string]any{
			"group": map[string]any{"data": map[string]any{"type": "groups", "id": "public"}}, "bundle": map[string]any{"data": map[string]any{"type": "bundles", "id": uuid}},
		}}
	}
	for _, request := range []struct {
		name, method, path string
		body               any
		each               int // the statements for each bundle
	}{
		{"create", http.MethodPost, "/bundles?check_requests=1&worksheet=" + home, each(uuids, run), 0},
		{"edit", http.MethodPatch, "/bundles", each(uuids, edited), 0},
		{"share", http.MethodPost, "/bundle-permissions", each(uuids, shared), 2},
		{"kill", http.MethodPost, "/bundle-actions", each(uuids, func(uuid string) map[string]any {
			return map[string]any{"type": "bundle-actions", "attributes": map[string]any{"type": "kill", "uuid": uuid}}
		}), 0},
		{"delete", http.MethodDelete, "/bundles?force=1", each(uuids, func(uuid string) map[string]any {
			return map[string]any{"type": "bundles", "id": uuid}
		}), 0},
	} {
		before := p.Sent()
		s.call("alice", request.method, request.path, request.body).ok()
		if sent := p.Sent() - before; sent > most+bundles*request.each {
			t.Errorf("%s: %d pieces for the database for %d bundles", request.name, sent, bundles)
		}
	}
}

// CodaLab's own cl kill A B A is one request.
func TestKillThatNamesABundleTwiceEndsEach(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.run("x", nil), s.run("x", nil)
	s.call("alice", "POST", "/bundle-actions", each([]string{a, b, a}, func(uuid string) map[string]any {
		return map[string]any{"type": "bundle-actions", "attributes": map[string]any{"type": "kill", "uuid": uuid}}
	})).ok()
	for _, uuid := range []string{a, b} {
		got, err := s.store.Bundle(t.Context(), uuid)
		must(t, err)
		if got.State != codalab.StateKilled {
			t.Errorf("it is %s", got.State)
		}
	}
}
