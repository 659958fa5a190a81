package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/server"
)

// linkedData is a directory with a data set and, beside it, files that bundles must not
// reach.
func linkedData(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"root/set/sub/f": "1\n2\n3\n", "root/other/g": "other", "secret/s": "secret"} {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for link, target := range map[string]string{
		"root/set/near": "sub/f", "root/set/up": "../other/g", "root/set/out": "../../secret/s",
		"root/alias": "set", "root/away": "../secret", "root/set/absolute": filepath.Join(dir, "secret/s"),
	} {
		must(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	return dir
}

func (s *site) link(path string) string {
	s.t.Helper()
	return s.create("dataset", "set", "", map[string]any{"link_url": path, "link_format": "raw"}).ok().text("data", 0, "id")
}

func TestLinksAreReadBelowTheirRootsAlone(t *testing.T) {
	t.Parallel()
	dir := linkedData(t)
	s := newSite(t, func(c *server.Config) { c.LinkRoots = []string{filepath.Join(dir, "none"), filepath.Join(dir, "root")} })
	whole := "/bundles/" + s.link(filepath.Join(dir, "root/set"))
	if a := s.get("alice", whole+"/contents/info/?depth=2").ok(); a.text("data", "type") != "directory" || a.text("data", "contents", 3, "contents", 0, "name") != "f" {
		t.Errorf("%s", a.body)
	}
	s.get("bob", whole+"/contents/blob/sub/f").is(http.StatusForbidden)
	for _, read := range []string{
		whole + "/contents/blob/sub/f",
		"/bundles/" + s.link("file://"+filepath.Join(dir, "root/set/sub/f")) + "/contents/blob/",
		"/bundles/" + s.link(filepath.Join(dir, "root/alias/")) + "/contents/blob/sub/f",
	} {
		if a := s.get("alice", read).ok(); a.body != "1\n2\n3\n" {
			t.Errorf("%s: %q", read, a.body)
		}
	}
	for _, name := range []string{"near", "up", "out", "absolute"} { // as in any bundle
		s.get("alice", whole+"/contents/blob/"+name).says(http.StatusForbidden, "Cannot download files of this type (link)")
	}
	for _, name := range []string{"../other/g", "sub/f/deeper", "up/g", "nosuch"} {
		if a := s.get("alice", whole+"/contents/info/"+name); a.status == http.StatusOK {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "secret/s"):             "which this server does not read",
		filepath.Join(dir, "root/../secret/s"):     "which this server does not read",
		filepath.Join(dir, "root/away"):            "which this server cannot read",
		filepath.Join(dir, "root/away/s"):          "which this server cannot read",
		filepath.Join(dir, "root/set/nosuch"):      "which this server cannot read",
		"root/set":                                 "which this server does not read",
		"https://example.org/data":                 "which this server does not read",
		filepath.Join(dir, "root") + "x/../../etc": "which this server does not read",
	} {
		s.get("alice", "/bundles/"+s.link(path)+"/contents/info/").says(http.StatusNotFound, want)
	}
}

func TestWithoutRootsNoLinkIsRead(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.link(filepath.Join(linkedData(t), "root/set"))
	for _, what := range []string{"info/", "blob/", "blob/sub/f"} {
		s.get("alice", "/bundles/"+uuid+"/contents/"+what).says(http.StatusNotFound, "which this server does not read")
	}
}
