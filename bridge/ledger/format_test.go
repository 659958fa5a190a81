package ledger_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/spool"
)

// beforeFormat2 has the migrations of the last version that wrote format 1.
func beforeFormat2(t *testing.T) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	for _, name := range []string{"00001_rows.sql", "00002_history.sql", "00003_writer.sql"} {
		data, err := os.ReadFile("migrations/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: data}
	}
	return files
}

// format1 has rows that the last version of format 1 wrote: one in each phase, and one in which every field
// has a value (fullRow).
func format1(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("testdata/format1.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// writeFormat1 makes a ledger of the last version of format 1.
func writeFormat1(t *testing.T, where string) {
	t.Helper()
	old, err := sqldb.Open(t.Context(), where, beforeFormat2(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range format1(t) {
		var r struct {
			Bundle, Queue, Phase, Reason, Mark string
			Attempt                            int
		}
		if err := json.Unmarshal([]byte(document), &r); err != nil {
			t.Fatal(err)
		}
		if _, err := old.Exec(old.Rebind(`INSERT INTO rows (bundle, version, queue, phase, reason, attempt, mark, job, since, document)
			VALUES (?, 3, ?, ?, ?, ?, ?, 7, 1800000000, ?)`), r.Bundle, r.Queue, r.Phase, r.Reason, r.Attempt, r.Mark, document); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLedgerOfTheVersionBeforeIsTakenOver(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, place func(testing.TB) string) {
		where := place(t)
		writeFormat1(t, where)
		l := open(t, where)
		rows := read(t, l)
		var phases []plan.Phase
		for _, r := range rows[:len(plan.Phases())] {
			phases = append(phases, r.Phase)
			n, begun := 1, r.Phase != plan.Submitting && r.Phase != plan.Queued
			if r.Phase == plan.Claiming || r.Phase == plan.Staging {
				n, begun = 0, false
			}
			if r.Attempt.Number != n || (r.SubmissionName != "") != (n > 0) || (r.OnDisk == spool.OldAttemptName(n)) != (n > 0) || (r.Begun != nil) != begun || r.RunningAt.IsZero() == begun || r.Version != 3 {
				t.Errorf("%s: %+v", r.Phase, r)
			}
		}
		same(t, "the phases", plan.Phases(), phases)
		full := fullRow("0x10000000000000000000000000000000")
		full.Version, full.OnDisk = 3, spool.OldAttemptName(1)
		fresh := gocmp.FilterPath(func(p gocmp.Path) bool { return newSinceFormat1(p.GoString()) }, gocmp.Ignore())
		if diff := gocmp.Diff(full, rows[len(rows)-1], fresh); diff != "" {
			t.Errorf("the row of which every field has a value (-want +got):\n%s", diff)
		}
		for range 2 { // the first save writes the row in the new format, the second one saves that again
			take(t, l)
			save(t, l, rows...)
			same(t, "saved again", rows, read(t, l))
		}
	})
}

// newSinceFormat1 reports whether a field of a row did not exist in format 1.
func newSinceFormat1(field string) bool {
	return slices.ContainsFunc([]string{
		".Submitted", ".RevokedSince", ".Job.Exit", ".Held", ".RefusedSince", ".RefusedAlone", ".FailedAttempts", ".FailedStarts", ".StartsFailSince", ".FailedNode", ".SickNodes", ".AnyNode",
		".Exclude", ".Job.Cluster", ".Job.CancelledBy", ".QueueTrouble", ".NotStarted", ".NodeAtFault", ".SharedDiskFull", ".FailedSurely", ".Standalone", ".Restage",
	}, func(name string) bool { return strings.HasSuffix(field, name) })
}

func TestOlderVersionRefusesTheLedgerOfANewerOne(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, place func(testing.TB) string) {
		where := place(t)
		writeFormat1(t, where)
		if err := open(t, where).Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := sqldb.Open(t.Context(), where, beforeFormat2(t)); err == nil || !strings.Contains(err.Error(), "a newer one") {
			t.Errorf("the version before opens the ledger: %v", err)
		}
	})
}
