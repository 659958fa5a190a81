package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// A digest confirms a guess of the contents, and a reader of a run need not be a reader of its inputs.
func TestPlatformIsShownAndDigestsOfInputsToTheirOwner(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	run := reportOf(uuid, codalab.StateRunning)
	run.Platform = &codalab.Platform{Site: "big", GPUs: []string{"NVIDIA H200", "NVIDIA H200"}, GPUDriver: "570.1", Software: []codalab.Software{{Name: "Slurm", Version: "24.11.5"}}}
	w.checkIn(run)
	if diff := cmp.Diff(run.Platform, s.bundle("alice", uuid).Platform); diff != "" {
		t.Errorf("while it runs (-want +got):\n%s", diff)
	}
	s.browse(t, "alice").shows(t, "/bundles/"+uuid, http.StatusOK, "What it ran on", "<dt>gpus</dt><dd>2 × NVIDIA H200</dd>", "<dt>Slurm</dt><dd>24.11.5</dd>")
	w.checkIn(reportOf(uuid, codalab.StateRunning)) // of an older bridge, which knows nothing of it
	digest := codalab.FileDigest + strings.Repeat("a", 64)
	end := reportOf(uuid, codalab.StateFinalizing)
	told := *run.Platform
	told.Inputs = []codalab.InputDigest{{ChildPath: "in", Digest: digest}}
	end.Platform = &told
	w.checkIn(end)
	if diff := cmp.Diff(&told, s.bundle("alice", uuid).Platform); diff != "" {
		t.Errorf("at its end (-want +got):\n%s", diff)
	}
	s.share("alice", "bundle", uuid, "public", store.PermissionRead)
	if diff := cmp.Diff(run.Platform, s.bundle("bob", uuid).Platform); diff != "" {
		t.Errorf("a reader (-want +got):\n%s", diff)
	}
	if a := s.get("bob", "/bundles?keywords=uuid="+uuid).ok(); strings.Contains(a.body, digest) || !strings.Contains(a.body, "570.1") {
		t.Errorf("a reader finds %s", a.body)
	}
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
