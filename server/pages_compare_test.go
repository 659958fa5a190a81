package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestBundlesAreComparedSideBySide(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sweep := s.sweep("compared")
	first := s.result(sweep, "first", `{"acc": 0.5, "note": "<b>"}`, codalab.Setting{Name: "lr", Value: "0.1"}, codalab.Setting{Name: "opt", Value: "adam"})
	second := s.result(sweep, "second", `{"acc": 0.75, "note": "<b>"}`, codalab.Setting{Name: "lr", Value: "0.2"}, codalab.Setting{Name: "opt", Value: "adam"})
	waits := s.member(sweep, codalab.TypeRun, "waits", codalab.Setting{Name: "lr", Value: "0.3"})
	a := s.browse(t, "alice")
	const button = `<button formmethod="get" formaction="/compare">`
	a.shows(t, "/runs?q=.mine", http.StatusOK, button)
	a.shows(t, "/sweeps/"+sweep, http.StatusOK, button)
	a.shows(t, "/compare", http.StatusOK, "Choose bundles in the list")
	sent := a.form("/compare?"+url.Values{"uuid": {first, second}, "next": {"/runs"}}.Encode(), nil, nil, a.cookies...)
	address := "/compare?uuid=" + first + "&uuid=" + second
	if sent.status != http.StatusSeeOther || sent.header.Get("Location") != address {
		t.Errorf("the button leads to %d %s", sent.status, sent.header.Get("Location"))
	}
	const differs, same = `<th scope="row">%s <small>differs</small></th><td>%s</td><td>%s</td>`, `<th scope="row">%s</th><td>%s</td><td>%s</td>`
	row := func(form string, cells ...any) string { return fmt.Sprintf(form, cells...) }
	page := a.shows(t, address, http.StatusOK, "2 of ", row(differs, "/stats.json:acc", "0.5", "0.75"), row(differs, "setting lr", "0.1", "0.2"),
		row(same, "/stats.json:note", "&lt;b&gt;", "&lt;b&gt;"), row(same, "/log.jsonl:-1:step", "20", "20"), row(same, "setting opt", "adam", "adam"), "cl diff "+first+" "+second+"</code>")
	if strings.Index(page, "setting lr") > strings.Index(page, `row">state`) {
		t.Error("the rows that differ are not the first ones")
	}
	if only := a.shows(t, address+"&only=1", http.StatusOK, row(differs, "setting lr", "0.1", "0.2"), "Show all rows"); strings.Contains(only, "setting opt") {
		t.Error("rows that do not differ are not hidden")
	}
	a.shows(t, address+"&uuid="+waits+"&uuid=0xnone", http.StatusOK, "Not found: <code>0xnone</code>.", "train waits", `<span class="hidden">none</span>`, "cl info "+first+" "+second+" "+waits+"</code>")
	var many []string
	for range 21 {
		many = append(many, codalab.NewUUID())
	}
	a.shows(t, "/compare?"+url.Values{"uuid": append([]string{first}, many...)}.Encode(), http.StatusOK, "These are 22 bundles. The first 20 are compared.")
	// Others see what they may read.
	s.share("alice", "bundle", first, "public", store.PermissionRead)
	b := s.browse(t, "bob")
	if page := b.shows(t, address, http.StatusOK, "Not found: <code>"+second+"</code>.", "0.5"); strings.Contains(page, "0.75") || strings.Contains(page, ">second<") {
		t.Error("bob sees what he may not read")
	}
	b.shows(t, "/compare?uuid="+second, http.StatusNotFound, "None of these bundles is found.")
	s.browse(t, "").shows(t, "/compare?uuid="+second, http.StatusNotFound, "Sign in")
}
