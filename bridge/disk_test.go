package bridge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// onDisk is a bridge on a shared disk, which is mounted or not.
func onDisk(t *testing.T, mounted bool) *Bridge {
	t.Helper()
	l := spool.Layout(t.TempDir())
	if mounted {
		for _, d := range l.Directories() {
			if err := os.MkdirAll(d, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := &Bridge{Config: Config{Policy: plan.Policy{Layout: l, Bridge: "b1b2b3", Owner: "ann"}, Spool: spool.Disk{Layout: l, Bridge: "b1b2b3"}, Now: time.Now}}
	b.assemble()
	b.board.init()
	return b
}

func readRecords(b *Bridge) plan.News {
	var n plan.News
	b.records.read(plan.Row{Bundle: "0x1", Attempt: plan.Attempt{Number: 1, OnDisk: "1-b1b2b3"}})(&n)
	return n
}

func TestSharedDiskThatIsNotThereSaysNothing(t *testing.T) {
	t.Parallel()
	b := onDisk(t, false)
	row := plan.Row{Bundle: "0x1", Attempt: plan.Attempt{Number: 1, OnDisk: "1-b1b2b3", SubmissionName: "m"}}
	if n := readRecords(b); n.Records == nil || !n.Records.Read.IsZero() || n.RecordsFailure == "" {
		t.Errorf("reading returned %+v, want that it failed, and no absence", n)
	}
	if c := b.doer.fence(t.Context(), row); c.Failure == "" || c.Gone || c.Started.Fenced {
		t.Errorf("fencing returned %+v, want that it failed", c)
	}
	if err := b.doer.release(row); err == nil {
		t.Error("files count as released")
	}
}

// Reading a directory in a record's place fails.
func TestRecordThatTheDiskDoesNotGiveOutIsNotAbsent(t *testing.T) {
	t.Parallel()
	b := onDisk(t, true)
	a := b.Policy.Layout.Attempt("0x1", "1-b1b2b3")
	if err := os.MkdirAll(filepath.Join(a.Dir, "exit.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Begin(t.Context(), spool.Started{Token: "t"}); err != nil {
		t.Fatal(err)
	}
	n := readRecords(b)
	if n.RecordsFailure == "" || n.Records == nil || n.Records.Started == nil || !n.Records.Read.IsZero() {
		t.Errorf("failure %q, records %+v; want the start, and that not all was read", n.RecordsFailure, n.Records)
	}
}

func TestReadingAndFencingShowTheStart(t *testing.T) {
	t.Parallel()
	b := onDisk(t, true)
	row := plan.Row{Bundle: "0x1", Attempt: plan.Attempt{Number: 1, OnDisk: "1-b1b2b3"}}
	if n := readRecords(b); n.RecordsFailure != "" || n.Records.Read.IsZero() || n.Records.Started != nil {
		t.Errorf("reading an attempt without a directory: %+v, want a whole reading of nothing", n)
	}
	if err := b.Spool.Prepare(row.OnDisk, b.Policy.Spec(withRun(row))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Policy.Layout.Attempt("0x1", "1-b1b2b3").Begin(t.Context(), spool.Started{Token: "t"}); err != nil {
		t.Fatal(err)
	}
	if n := readRecords(b); n.Records.Started == nil || n.Records.Started.Token != "t" || n.Records.Attempt != 1 {
		t.Errorf("records %+v, want the start", n.Records)
	}
	// An attempt that began cannot be fenced: its start counts.
	if c := b.doer.fence(t.Context(), row); c.Failure != "" || c.Started.Token != "t" || c.Attempt != 1 {
		t.Errorf("fencing returned %+v, want the start", c)
	}
}

// emptied is a disk from which the attempts were removed.
type emptied struct{ Spool }

func (emptied) Fence(context.Context, string, spool.AttemptName, time.Time) (spool.Started, error) {
	return spool.Started{}, fmt.Errorf("fence attempt: %w", spool.ErrGone)
}

func TestFencingOfAnAttemptWhoseFilesAreGoneReportsIt(t *testing.T) {
	t.Parallel()
	d := doer{spool: emptied{}, now: time.Now}
	if c := d.fence(t.Context(), plan.Row{Bundle: "0x1", Attempt: plan.Attempt{Number: 1, OnDisk: "1-b1b2b3"}}); !c.Gone || c.Failure == "" {
		t.Errorf("fencing returned %+v, want that the records are gone", c)
	}
}

// withRun is a row of which a specification can be made.
func withRun(r plan.Row) plan.Row {
	r.Run, r.SubmissionName = &codalab.RunBundle{Command: "true"}, "m"
	return r
}
