package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// history returns a bundle's history in words, as a user gets it.
func (s *site) history(user, uuid string) []string {
	s.t.Helper()
	var answer struct {
		Data []codalab.BundleEvent `json:"data"`
	}
	must(s.t, json.Unmarshal([]byte(s.get(user, "/bundles/"+uuid+"/history").ok().body), &answer))
	var lines []string
	for _, e := range answer.Data {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.User.Name, e.Action, e.Words())))
	}
	return lines
}

func TestHistoryTellsWhoDidWhatWithABundle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	home := s.home("alice")
	s.share("alice", "worksheet", home, "public", store.PermissionRead)
	group := s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "lab"})).ok().text("data", 0, "id")
	s.call("alice", "POST", "/groups/lab/relationships/members", deletion("users", "bob")).ok()
	uuid := s.upload("data", "x")
	s.share("alice", "bundle", uuid, "public", store.PermissionNone)
	s.share("alice", "bundle", uuid, "public", store.PermissionNone) // changes nothing
	s.share("alice", "bundle", uuid, "lab", store.PermissionAll)
	s.share("alice", "bundle", uuid, "lab", store.PermissionAll) // changes nothing
	s.patch("bob", "bundles", uuid, map[string]any{"metadata": map[string]any{"description": "new", "name": "data", "tags": []string{"x"}}}).ok()
	s.patch("bob", "bundles", uuid, map[string]any{"metadata": map[string]any{"description": "new"}}).ok() // changes nothing
	s.patch("bob", "bundles", uuid, map[string]any{"frozen": "2026-11-28T00:00:00"}).ok()
	s.patch("alice", "bundles", uuid, map[string]any{"frozen": nil}).ok()
	s.call("alice", "DELETE", "/bundles?data-only=1", deletion("bundles", uuid)).ok()
	lab := "with group lab(" + group + "): "
	want := []string{
		"alice created on worksheet home-alice(" + home + "), with group public(" + store.PublicGroup + "): read",
		"alice uploaded",
		"alice shared with group public(" + store.PublicGroup + "): none",
		"alice shared " + lab + "all",
		"bob edited keys description tags",
		"bob froze",
		"alice thawed",
		"alice emptied",
	}
	for _, user := range []string{"alice", "bob", "root"} {
		if diff := cmp.Diff(want, s.history(user, uuid)); diff != "" {
			t.Errorf("%s: %s", user, diff)
		}
	}
	s.share("alice", "bundle", uuid, "lab", store.PermissionRead)
	s.get("bob", "/bundles/"+uuid+"/history").is(http.StatusForbidden) // bob may read it, and not change it
	s.get("alice", "/bundles/0x"+strings.Repeat("0", 32)+"/history").is(http.StatusForbidden)

	run := s.run("x", cpuQueue)
	w := s.worker("alice", "w", "cpu")
	w.takes()
	w.checkIn(reportOf(run, codalab.StateRunning))
	s.call("root", "POST", "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": run})).ok()
	s.call("alice", "POST", "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": run})).ok()
	if got := s.history("alice", run); len(got) != 2 || got[1] != "root killed" {
		t.Errorf("%q", got)
	}
}

func TestNewOwnerIsInTheHistory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "x")
	bob, err := s.store.User(t.Context(), "bob")
	must(t, err)
	ctx := store.WithRecord(t.Context(), &store.Record{UserID: store.RootID, UserName: "root", At: time.Now()})
	_, err = s.store.Change(ctx, uuid, func(b *store.Bundle) error { b.OwnerID = bob.ID; return nil })
	must(t, err)
	got := s.history("bob", uuid)
	if want := "root gave of alice(0x" + strings.Repeat("a", 32) + "), to bob(" + bob.ID + ")"; got[len(got)-1] != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOffersAndWhatTheyLowerAreInTheHistory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	group := s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "lab"})).ok().text("data", 0, "id")
	uuid := s.upload("data", "x")
	s.share("alice", "bundle", uuid, "lab", store.PermissionAll)
	before := len(s.history("alice", uuid))
	for _, turn := range []struct{ by, names string }{
		{"alice", bobsID}, {"alice", alicesID}, {"alice", bobsID}, {"bob", alicesID}, {"alice", bobsID}, {"bob", bobsID},
	} {
		s.chown(turn.by, "bundles", turn.names, uuid).ok()
	}
	toBob := "to bob(" + bobsID + ")"
	want := []string{
		"alice offered " + toBob, "alice unoffered " + toBob, "alice offered " + toBob, "bob unoffered " + toBob, "alice offered " + toBob,
		"bob gave of alice(" + alicesID + "), " + toBob, "bob shared with group lab(" + group + "): read",
	}
	if diff := cmp.Diff(want, s.history("bob", uuid)[before:]); diff != "" {
		t.Error(diff)
	}
}

func TestHistoryIsBoundedAndKeepsItsBeginning(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "x")
	ctx := store.WithRecord(t.Context(), &store.Record{UserID: "0x1", UserName: "x", At: time.Now()})
	_, err := s.store.Change(ctx, uuid, func(b *store.Bundle) error {
		for n := range 2000 {
			b.Record(codalab.ActionWrote, codalab.EventDetails{File: fmt.Sprint(n)})
		}
		return nil
	})
	must(t, err)
	got := s.history("alice", uuid)
	if len(got) != 1000 || !strings.HasPrefix(got[0], "alice created") || got[1] != "x wrote file 1001" || got[999] != "x wrote file 1999" {
		t.Errorf("%d entries: %q … %q", len(got), got[:2], got[len(got)-1])
	}
}

// A bundle from before there were histories has its creation, without a user.
func TestHistoryOfAnOldBundleBeginsWithItsCreation(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := store.Bundle{
		UUID: codalab.NewUUID(), Type: codalab.TypeDataset, OwnerID: "0x" + strings.Repeat("a", 32), State: codalab.StateReady,
		Metadata: codalab.Metadata{"name": "old"}, Created: store.Time{Time: time.Unix(1e9, 0)}, Dependencies: []codalab.Dependency{},
	}
	must(t, s.store.CreateBundle(t.Context(), b, ""))
	a := s.get("alice", "/bundles/"+b.UUID+"/history").ok()
	if a.value("data", 0, "time") != 1e9 || a.text("data", 0, "action") != "created" || a.text("data", 0, "user", "id") != "" {
		t.Error(a.body)
	}
}

// auditFile receives audit lines, and fails while it is full.
type auditFile struct {
	mu    sync.Mutex
	full  bool
	lines []map[string]any
}

func (f *auditFile) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full {
		return 0, errors.New("no space left on device")
	}
	var one map[string]any
	if err := json.Unmarshal(line, &one); err != nil {
		return 0, err
	}
	f.lines = append(f.lines, one)
	return len(line), nil
}

func (f *auditFile) setFull(full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = full
}

// did returns what the last line says that its request did, in words.
func (f *auditFile) did(t *testing.T) (request string, words []string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.lines) == 0 {
		return "", nil
	}
	last := f.lines[len(f.lines)-1]
	request, _ = last["request"].(string)
	return request, eventsOf(t, last["did"])
}

// eventsOf returns the events of an audit line in words.
func eventsOf(t *testing.T, did any) (words []string) {
	t.Helper()
	text, err := json.Marshal(did)
	must(t, err)
	var events []store.Event
	must(t, json.Unmarshal(text, &events))
	for _, e := range events {
		words = append(words, e.String())
	}
	return words
}

func TestAuditLinesNameWhatARequestDid(t *testing.T) {
	t.Parallel()
	file := &auditFile{}
	s := newSite(t, func(c *server.Config) { c.Audit = file })
	says := func(a answer, words ...string) {
		t.Helper()
		request, did := file.did(t)
		if diff := cmp.Diff(words, did); diff != "" || !strings.HasPrefix(request, a.what) {
			t.Errorf("%s: the audit line of %s: %s", a.what, request, diff)
		}
	}
	alice, bob := "0x"+strings.Repeat("a", 32), "0x"+strings.Repeat("b", 32)
	a := s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "paper"})).ok()
	sheet := a.text("data", 0, "id")
	says(a, "created worksheet "+sheet+"(paper)")
	a = s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "lab"})).ok()
	group := a.text("data", 0, "id")
	says(a, "created group "+group+"(lab)")
	says(s.call("alice", "POST", "/groups/lab/relationships/admins", deletion("users", "bob")).ok(), "added group "+group+"(lab) user bob("+bob+"), as admin")
	says(s.call("alice", "POST", "/worksheet-permissions", permissionRequest("worksheet", sheet, "lab", store.PermissionRead)).ok(),
		"shared worksheet "+sheet+"(paper) with group lab("+group+"): read")
	a = s.call("alice", "POST", "/bundles?worksheet="+sheet, object("bundles", map[string]any{"bundle_type": "dataset", "metadata": metadata("dataset", "data", nil)})).ok()
	data := a.text("data", 0, "id")
	says(a, "created bundle "+data+"(data) on worksheet paper("+sheet+"), with group lab("+group+"): read")
	says(s.put(data, "filename=x&unpack=0", "x").ok(), "uploaded bundle "+data+"(data)")
	says(s.call("alice", "POST", "/bundle-permissions", permissionRequest("bundle", data, "public", store.PermissionRead)).ok(),
		"shared bundle "+data+"(data) with group public("+store.PublicGroup+"): read")
	says(s.call("alice", "POST", "/worksheets/"+sheet+"/add-items", map[string]any{"items": []string{data}, "item_type": "bundle"}).ok(),
		"added worksheet "+sheet+"(paper) items "+data)
	says(s.call("alice", "POST", "/worksheet-items?uuid="+sheet, object("worksheet-items", map[string]string{"type": "markup", "value": "x"})).ok(),
		"added worksheet "+sheet+"(paper) 1 texts")
	says(s.patch("alice", "bundles", data, map[string]any{"metadata": map[string]any{"license": "x"}}).ok(), "edited bundle "+data+"(data) keys license")
	says(s.call("alice", "DELETE", "/groups/lab/relationships/members", deletion("users", bob)).is(http.StatusNoContent), "removed group "+group+"(lab) user bob("+bob+")")
	says(s.call("alice", "DELETE", "/bundles?force=1", deletion("bundles", data)).ok(), "deleted bundle "+data+"(data)")
	says(s.call("alice", "DELETE", "/worksheets?force=1", deletion("worksheets", sheet)).ok(), "deleted worksheet "+sheet+"(paper)")
	says(s.call("alice", "DELETE", "/groups", deletion("groups", group)).is(http.StatusNoContent), "deleted group "+group+"(lab)")

	// A refused request changes nothing, and its line has what it named.
	secret := s.upload("secret", "x")
	s.call("bob", "POST", "/bundle-permissions", permissionRequest("bundle", secret, "public", store.PermissionAll)).is(http.StatusForbidden)
	last := file.lines[len(file.lines)-1]
	if want := []any{secret, "public"}; !cmp.Equal(last["objects"], want) || last["did"] != nil || last["user_id"] != bob || last["status"] != 403.0 {
		t.Errorf("%v, want the objects %v", last, want)
	}
	s.call("alice", "POST", "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": secret})).is(http.StatusBadRequest)
	if last := file.lines[len(file.lines)-1]; !cmp.Equal(last["objects"], []any{secret}) || last["user_id"] != alice {
		t.Errorf("%v", last)
	}
}

// The server goes on without its audit file, tells it in its log and counts the lines.
func TestFullAuditFileIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file, log := &auditFile{}, &testenv.Output{}
		s := newSite(t, func(c *server.Config) { c.Audit, c.Log = file, slog.New(slog.NewTextHandler(log, nil)) })
		file.setFull(true)
		for range 3 {
			s.dataset("x")
		}
		if n := s.metric("codalab_audit_lines_lost_total"); n != "3" {
			t.Errorf("%s lines are lost", n)
		}
		const lost = "audit lines cannot be written to the audit file; they are in this log"
		if strings.Count(log.String(), lost) != 1 || strings.Count(log.String(), "msg=audit user=alice") < 3 || !strings.Contains(log.String(), "no space left on device") {
			t.Error(log.String())
		}
		file.setFull(false)
		before := len(file.lines)
		s.dataset("y")
		if len(file.lines) != before+1 || !strings.Contains(log.String(), "are written again; some are missing in the audit file\" missing=3") {
			t.Error(log.String())
		}
	})
}
