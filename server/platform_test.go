package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// A digest confirms a guess of the contents, and those who have all permissions on a run need not be readers of its inputs.
func TestPlatformIsShownAndDigestsToReadersOfTheInputs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	open, closed := s.upload("open", "1"), s.upload("closed", "2")
	w := s.worker("alice", "w", "cpu")
	uuid := s.run("x", cpuQueue, codalab.Dependency{ChildPath: "open", ParentUUID: open}, codalab.Dependency{ChildPath: "closed", ParentUUID: closed})
	w.takes()
	run := reportOf(uuid, codalab.StateRunning)
	run.Platform = &codalab.Platform{Site: "big", GPUs: []string{"NVIDIA H200", "NVIDIA H200"}, GPUDriver: "570.1", Software: []codalab.Software{{Name: "Slurm", Version: "24.11.5"}}}
	w.checkIn(run)
	if diff := cmp.Diff(run.Platform, s.bundle("alice", uuid).Platform); diff != "" {
		t.Errorf("while it runs (-want +got):\n%s", diff)
	}
	s.browse(t, "alice").shows(t, "/bundles/"+uuid, http.StatusOK, "What it ran on", "<dt>gpus</dt><dd>2 × NVIDIA H200</dd>", "<dt>Slurm</dt><dd>24.11.5</dd>")
	w.checkIn(reportOf(uuid, codalab.StateRunning)) // of an older bridge, which knows nothing of it
	digest := func(path, digit string) codalab.InputDigest {
		return codalab.InputDigest{ChildPath: path, Digest: codalab.FileDigest + strings.Repeat(digit, 64)}
	}
	end := reportOf(uuid, codalab.StateFinalizing)
	told := *run.Platform
	told.Inputs = []codalab.InputDigest{digest("open", "a"), digest("closed", "b"), digest("none", "c")}
	end.Platform = &told
	w.checkIn(end)
	sees := func(user string, inputs ...codalab.InputDigest) {
		t.Helper()
		want := *run.Platform
		want.Inputs = inputs
		if diff := cmp.Diff(&want, s.bundle(user, uuid).Platform, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", user, diff)
		}
	}
	sees("alice", told.Inputs[:2]...)
	sees("root", told.Inputs...)
	for _, permission := range []int{store.PermissionRead, store.PermissionAll} {
		s.share("alice", "bundle", uuid, "public", permission)
		sees("bob")
		if a := s.get("bob", "/bundles?keywords=uuid="+uuid).ok(); strings.Contains(a.body, codalab.FileDigest) || !strings.Contains(a.body, "570.1") {
			t.Errorf("bob finds %s", a.body)
		}
	}
	s.share("alice", "bundle", open, "public", store.PermissionRead)
	sees("bob", told.Inputs[0])
	s.call("alice", http.MethodDelete, "/bundles?force=1", map[string]any{"data": []any{map[string]string{"type": "bundles", "id": closed}}}).ok()
	sees("alice", told.Inputs[0])
}

func TestPlatformOfAHostileWorkerStaysSmall(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	run := reportOf(uuid, codalab.StateRunning)
	run.Platform = &codalab.Platform{Site: "<script>\x1b[2J" + strings.Repeat("x", 10_000)}
	for range 10_000 {
		run.Platform.GPUs = append(run.Platform.GPUs, "\u202e<b>")
	}
	w.checkIn(run)
	got := s.bundle("alice", uuid).Platform
	if got == nil || len(got.Site) > 200 || len(got.GPUs) > 64 {
		t.Fatalf("%+v", got)
	}
	page := s.browse(t, "alice").shows(t, "/bundles/"+uuid, http.StatusOK, "What it ran on")
	if strings.ContainsAny(page, "\x1b\u202e") || strings.Contains(page, "<b>") {
		t.Error("the page has what the worker wrote")
	}
	run.Platform, run.RunStatus = &codalab.Platform{}, "something new"
	w.checkIn(run)
	if got := s.bundle("alice", uuid).Platform; got != nil {
		t.Errorf("of a worker that knows nothing: %+v", got)
	}
}

// A user may write what they want of a run that they copy, so that it says so, for good. Nobody but a worker tells what a run of
// this server ran on.
func TestPlatformOfACopyIsMarked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	told := map[string]any{
		"site": "<b>big\u202e" + strings.Repeat("x", 10_000), "gpu_driver": "570.1", "imported": false, "software": []any{map[string]string{"name": "Slurm"}},
		"inputs": []any{map[string]string{"child_path": "d", "digest": codalab.FileDigest + strings.Repeat("a", 64)}},
	}
	create := func(query, kind string, platform any) *codalab.Platform {
		t.Helper()
		attributes := map[string]any{"bundle_type": kind, "metadata": metadata(kind, "copy", map[string]any{}), "platform": platform}
		if kind == codalab.TypeRun {
			attributes["command"], attributes["dependencies"] = "x", []any{}
		}
		uuid := s.call("alice", http.MethodPost, "/bundles?worksheet="+s.home("alice")+query, object("bundles", attributes)).ok().text("data", 0, "id")
		return s.bundle("alice", uuid).Platform
	}
	got := create("&wait_for_upload=1", codalab.TypeRun, told)
	if got == nil || !got.Imported || got.GPUDriver != "570.1" || len(got.Site) > 200 || strings.Contains(got.Site, "\u202e") || len(got.Inputs) > 0 || len(got.Software) != 1 {
		t.Errorf("a copy has %+v", got)
	}
	for name, platform := range map[string]*codalab.Platform{
		"a new run": create("", codalab.TypeRun, told), "a dataset": create("&wait_for_upload=1", codalab.TypeDataset, told),
		"nothing": create("&wait_for_upload=1", codalab.TypeRun, map[string]any{"imported": true}), "null": create("&wait_for_upload=1", codalab.TypeRun, nil),
	} {
		if platform != nil {
			t.Errorf("%s has %+v", name, platform)
		}
	}
	attributes := map[string]any{"bundle_type": "run", "uuid": "0x" + strings.Repeat("ab", 16), "command": "x", "dependencies": []any{}, "metadata": metadata("run", "copy", map[string]any{}), "platform": told}
	s.call("alice", http.MethodPost, "/bundles?wait_for_upload=1&worksheet="+s.home("alice"), object("bundles", attributes)).ok()
	uuid := "0x" + strings.Repeat("ab", 16)
	s.put(uuid, "filename=a&unpack=0&finalize_on_success=1&state_on_success=ready", "1").ok()
	page := s.browse(t, "alice").shows(t, "/bundles/"+uuid, http.StatusOK, "What it ran on", "This is from the archive or the server from which the run was copied.", "<dt>Slurm</dt>")
	checkHarmless(t, "page", page)
	s.call("alice", http.MethodPatch, "/bundles", map[string]any{"data": []any{map[string]any{"type": "bundles", "id": uuid, "attributes": map[string]any{
		"bundle_type": "run", "metadata": map[string]any{"description": "x"}, "platform": map[string]any{"site": "forged"},
	}}}}).ok()
	if got := s.bundle("alice", uuid).Platform; got == nil || !got.Imported || got.Site == "forged" {
		t.Errorf("after a change the copy has %+v", got)
	}
	// A worker's own report cannot say that it is imported.
	w := s.worker("alice", "w", "cpu")
	run := s.run("x", cpuQueue)
	w.takes()
	report := reportOf(run, codalab.StateRunning)
	report.Platform = &codalab.Platform{Site: "big", Imported: true}
	w.checkIn(report)
	if got := s.bundle("alice", run).Platform; got == nil || got.Imported {
		t.Errorf("a run has %+v", got)
	}
}
