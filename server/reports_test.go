package server

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// A worker that got no answer reports a run again that has ended.
func TestServerRemembersNoReportOfARunThatHasEnded(t *testing.T) {
	t.Parallel()
	data, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = data.Close() }() // the test is over
	user := store.User{ID: "0x" + strings.Repeat("a", 32), Name: "alice"}
	if err := data.AddUser(t.Context(), user); err != nil {
		t.Fatal(err)
	}
	worker := store.Worker{User: user.ID, ID: "w"}
	ended := store.Bundle{
		UUID: "0x" + strings.Repeat("1", 32), Type: codalab.TypeRun, State: codalab.StateReady, OwnerID: user.ID,
		Metadata: codalab.Metadata{},
	}
	if err := data.CreateBundle(t.Context(), ended, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := data.Change(t.Context(), ended.UUID, func(b *store.Bundle) error {
		b.Worker = worker
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Store: data, Now: time.Now, HashIterations: 1})
	p, _ := s.hub.beginPoll(worker, codalab.CheckIn{}, time.Now())
	messages, err := s.applyReports(t.Context(), p, []codalab.Run{{UUID: ended.UUID, State: codalab.StateFinalizing}})
	if err != nil || len(messages) != 1 {
		t.Errorf("told %v, %v; want one acknowledgement", messages, err)
	}
	if len(p.worker.applied) > 0 {
		t.Errorf("remembers the reports of %v", p.worker.applied)
	}
}
