package server_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// alice is in the groups lab, with bob, and secret.
func TestRunMessageNamesTheOwnerAndOnlyGroupsThatTheWorkersUserMayKnow(t *testing.T) {
	t.Parallel()
	s := whose(t)
	s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "secret"})).ok()
	lab := s.get("alice", "/groups/lab").ok().text("data", "id")
	alice := s.get("alice", "/user").ok().text("data", "id")
	s.account("everybody", store.Scope{})
	s.account("ofgroup", store.Scope{GroupUUID: lab})
	s.account("narrow", store.Scope{OwnerID: alice})
	for worker, want := range map[string][]string{
		"alice": {"lab", "secret"}, "bob": {"lab"}, "everybody": {"lab", "secret"}, "ofgroup": {"lab"}, "narrow": nil,
	} {
		job := s.run("x", map[string]any{"request_queue": worker})
		w := s.worker(worker, "w", worker)
		if worker == "bob" {
			s.share("alice", "bundle", job, "lab", store.PermissionAll)
			w.of("lab")
		}
		m := w.told(codalab.MessageRun)
		if m.Bundle.UUID != job || m.Bundle.OwnerName != "alice" {
			t.Errorf("%s got %s of %q", worker, m.Bundle.UUID, m.Bundle.OwnerName)
		}
		if diff := cmp.Diff(want, m.Bundle.OwnerGroups); diff != "" {
			t.Errorf("%s (-want +got):\n%s", worker, diff)
		}
	}
}
