package stored_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

func TestRunDoesNotReadABundleOfAnotherUser(t *testing.T) {
	t.Parallel()
	parents := []store.Parent{
		{UUID: "0x1", OwnerID: "0xb"}, {UUID: "0x2", OwnerID: "0xa"}, {UUID: "0x3", OwnerID: "0xb", Granted: store.PermissionRead},
	}
	for i, want := range []bool{false, true, true} {
		if got := stored.Parents(plan.Bundle{OwnerID: "0xa"}, parents)[i].Readable; got != want {
			t.Errorf("%+v: readable %v", parents[i], got)
		}
	}
}

// A transition that changes nothing must not lose what package plan does not see.
func TestBundleThatBecomesItselfIsUnchanged(t *testing.T) {
	t.Parallel()
	command, frozen := "date", "2020"
	b := store.Bundle{
		UUID: "0xb", Type: codalab.TypeRun, OwnerID: "0xa", Command: &command, State: codalab.StateRunning, Frozen: &frozen, IsAnonymous: true,
		Metadata: codalab.Metadata{"name": "x"}, Dependencies: []codalab.Dependency{{ParentUUID: "0x1"}}, Created: store.Time{Time: time.Unix(1, 0)},
		DataSize: 7, Contents: "c", Entries: 4, Worker: store.Worker{User: "u", ID: "w"}, Assigned: store.Time{Time: time.Unix(2, 0)}, ChargedTime: 3, KillMessage: "k",
	}
	same := b
	stored.Become(&same, stored.Plan(b))
	if diff := cmp.Diff(b, same); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	other := store.Bundle{Metadata: codalab.Metadata{}}
	stored.Become(&other, stored.Plan(b))
	want := store.Bundle{
		State: b.State, Metadata: b.Metadata, DataSize: 7, Contents: "c", Entries: 4, Worker: b.Worker, Assigned: b.Assigned, ChargedTime: 3, KillMessage: "k",
	}
	if diff := cmp.Diff(want, other); diff != "" {
		t.Errorf("what a transition may change (-want +got):\n%s", diff)
	}
}
