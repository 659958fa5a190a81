package server_test

import (
	"archive/zip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab/export"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// TestWorksheetIsExportedFromItsPage: the archive has what its reader may read, and a page of which nothing runs.
func TestWorksheetIsExportedFromItsPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	picture, secret := s.upload("p.png", "PNG"), s.upload("secret", "hidden")
	waits := s.run("sleep 1", nil)
	home := s.home("alice")
	text := "# Results\n\n<script>alert(1)</script>\n\n![p](/rest/bundles/" + picture + "/contents/blob/) [run](/bundles/" + waits + ") [x](javascript:alert(1))"
	s.call("alice", "POST", "/worksheet-items?uuid="+home, object("worksheet-items", map[string]string{"type": "markup", "value": text})).ok()
	s.call("alice", "POST", "/worksheets/"+home+"/add-items", map[string]any{"items": []string{picture, secret, waits}, "item_type": "bundle"}).ok()
	address := "/worksheets/" + home + "/export.zip"
	s.browse(t, "alice").shows(t, "/worksheets/"+home, http.StatusOK, `href="`+address+`"`, "cl export "+home)
	s.browse(t, "bob").shows(t, address, http.StatusForbidden)
	s.share("alice", "worksheet", home, "public", store.PermissionRead)
	s.share("alice", "bundle", picture, "public", store.PermissionRead)
	s.share("alice", "bundle", secret, "public", store.PermissionNone)
	s.browse(t, "").shows(t, "/worksheets/x%2F..%2Fy/export.zip", http.StatusNotFound)
	reply := s.form(address, nil, nil, s.browse(t, "bob").cookies...)
	if reply.status != http.StatusOK || !strings.HasPrefix(reply.header.Get("Content-Disposition"), `attachment; filename="home-alice.zip"`) {
		t.Fatalf("%d %v", reply.status, reply.header)
	}
	in := strings.NewReader(reply.body)
	a, err := export.Open(in, in.Size())
	if err == nil {
		err = a.Verify(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if left := a.LeftOut(); len(left) != 2 || left[0].UUID != secret || left[0].Metadata != nil || strings.Contains(reply.body, "hidden") {
		t.Errorf("left out are %+v", left)
	}
	z, err := zip.NewReader(in, in.Size())
	if err != nil {
		t.Fatal(err)
	}
	page := entryOf(t, z, "index.html")
	for _, want := range []string{"<h2>Results</h2>", `<img src="contents/` + picture + `/p.png" alt="p"`, `href="http://example.com/bundles/` + waits + `"`, `id="` + secret + `"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s:\n%s", want, page)
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "javascript:") {
		t.Errorf("the page runs something:\n%s", page)
	}
	if got := entryOf(t, z, "contents/"+picture+"/p.png"); got != "PNG" {
		t.Errorf("the picture is %q", got)
	}
	if crate := entryOf(t, z, "ro-crate-metadata.json"); !strings.Contains(crate, `"@id": "contents/`+picture+`/p.png"`) {
		t.Errorf("the crate is %s", crate)
	}
}

func entryOf(t *testing.T, z *zip.Reader, name string) string {
	t.Helper()
	f, err := z.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
