package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// TestNothingOfAPrivateBundleIsShown asks for a run that only alice and root may read by each way that leads to bundles. The
// run is on a worksheet that everybody may read, its parent is public, and a worker for bob's group has it.
func TestNothingOfAPrivateBundleIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "lab"})).ok()
	s.call("alice", "POST", "/groups/lab/relationships/members", deletion("users", "bob")).ok()
	open := s.upload("open", "x")
	s.share("alice", "bundle", open, "public", store.PermissionRead)
	run := s.create("run", "secret-name", "echo secret-command", map[string]any{
		"request_queue": "tag=cpu", "description": "secret-words", "tags": []string{"secret-tag"},
	}, codalab.Dependency{ChildPath: "secret-key", ParentUUID: open, ParentPath: ""}).ok().text("data", 0, "id")
	w := s.worker("alice", "w", "cpu")
	w.info.GroupName = new("lab")
	w.takes()
	w.checkIn(reportOf(run, codalab.StateRunning))
	sheet := s.home("alice")
	s.share("alice", "worksheet", sheet, "public", store.PermissionRead)
	own := s.call("bob", "POST", "/worksheets", object("worksheets", map[string]string{"name": "bobs"})).ok().text("data", 0, "id")
	s.call("bob", "POST", "/worksheets/"+own+"/raw", strings.Join([]string{
		"% schema all", "% add command command", "% add args args", "% add description description", "% add name name", "% add in dependencies",
		"% display table all", "[run]{" + run + "}", "", "% search command=echo% .limit=50", "", "% display contents /stdout", "[run]{" + run + "}",
	}, "\n")).is(http.StatusNoContent)

	words := []string{"secret-name", "command=%secret%", "description=%secret%", "tags=secret-tag", "uuid=" + run, "dependency=" + open, "dependency/secret-key=" + open, "state=running", "host_worksheet=" + sheet + " type=run", "owner=alice type=run", "request_queue=tag=cpu", ".floating type=run"}
	var paths []string
	for _, word := range words {
		query := ""
		for one := range strings.FieldsSeq(word) {
			query += "&keywords=" + url.QueryEscape(one)
		}
		paths = append(paths, "/bundles?include=owner"+query)
	}
	paths = append(paths,
		"/bundles/"+run+"?include=owner,children,group_permissions,host_worksheets", "/bundles?specs="+run,
		"/bundles?specs="+open+"&depth=5&include=children", "/bundles?command="+url.QueryEscape("echo secret-command"),
		"/bundles/"+run+"/contents/info/?depth=1", "/bundles/"+run+"/contents/blob/stdout", "/bundles/"+run+"/locations/", "/bundles/"+run+"/history", "/bundles/"+run+"/usage",
		"/worksheets/"+sheet+"?include=items,items.bundle,items.bundle.owner", "/interpret/worksheet/"+sheet, "/interpret/worksheet/"+own, "/workers/info",
	)
	for _, user := range []string{"bob", ""} {
		for _, path := range paths {
			if a := s.get(user, path); strings.Contains(a.body, "secret") || strings.Contains(path, "workers/info") && strings.Contains(a.body, run) {
				t.Errorf("GET %s tells %q: %s", path, user, a.body)
			}
		}
		for _, path := range []string{paths[len(words)+2], "/bundles?keywords=type=run", "/bundles?keywords=dependency=" + open} {
			if a := s.get(user, path).ok(); strings.Contains(a.body, run) {
				t.Errorf("GET %s tells %q that there is a run: %s", path, user, a.body)
			}
		}
		for _, word := range words {
			for aggregate, none := range map[string]any{".count": 0.0, "data_size=.sum": nil} {
				query := "/bundles?keywords=" + url.QueryEscape(aggregate)
				for one := range strings.FieldsSeq(word) {
					query += "&keywords=" + url.QueryEscape(one)
				}
				if got := s.get(user, query).ok().value("meta", "result"); got != none {
					t.Errorf("%s of %s tells %q %v", aggregate, word, user, got)
				}
			}
		}
		genpaths := []any{map[string]any{"x": []any{run, "/stdout", nil}, "y": []any{run, "/", nil}}}
		table := s.call(user, "POST", "/interpret/genpath-table-contents", map[string]any{"contents": genpaths}).ok()
		files := s.call(user, "POST", "/interpret/file-genpaths", map[string]any{"queries": []any{map[string]any{"bundle_uuid": run, "genpath": "/stdout"}}}).ok()
		if strings.Contains(table.body+files.body, "secret") {
			t.Errorf("genpaths tell %q: %s %s", user, table.body, files.body)
		}
	}
	if a := s.get("alice", "/workers/info").ok(); !strings.Contains(a.body, run) {
		t.Errorf("alice does not see her worker's run: %s", a.body)
	}
	if a := s.get("bob", "/workers/info").ok(); a.text("data", 0, "worker_id") != "w" || a.value("data", 0, "cpus_in_use") != 1.0 {
		t.Errorf("bob does not see the group's worker: %s", a.body)
	}
	if a := s.get("alice", "/bundles?specs="+open+"&depth=5").ok(); !strings.Contains(a.body, run) {
		t.Errorf("alice does not see the descendants of her bundle: %s", a.body)
	}
}

// bob may delete the parent, and not read the child.
func TestPrivateChildOfADeletedBundleIsNotNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	parent := s.upload("parent", "x")
	child := s.run("cat in", map[string]any{"name": "hidden"}, codalab.Dependency{ChildPath: "in", ParentUUID: parent})
	s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "lab"})).ok()
	s.call("alice", "POST", "/groups/lab/relationships/members", deletion("users", "bob")).ok()
	s.share("alice", "bundle", parent, "lab", store.PermissionAll)
	refused := func(query string, status int, sentence string) {
		t.Helper()
		a := s.call("bob", "DELETE", "/bundles"+query, deletion("bundles", parent))
		a.says(status, sentence)
		if strings.Contains(a.body, child) || strings.Contains(a.body, "hidden") {
			t.Errorf("bob reads of alice's bundle: %s", a.body)
		}
	}
	refused("", http.StatusBadRequest, "1 of others, which you may not read")
	refused("?recursive=1", http.StatusForbidden, "Can't delete bundles that depend on")
}
