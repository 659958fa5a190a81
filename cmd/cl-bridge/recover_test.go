package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/admin/recovery"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// restored is a cluster with jobs of a bridge, and its ledger as it was before
// the last of them.
type restored struct {
	slurm                     slurmCommands
	id, where, shared, config string
}

// bundleNo is the UUID of a bundle of the tests.
func bundleNo(n int) string { return fmt.Sprintf("0x%d%031d", n, n) }

// restore makes a ledger that knows four submissions, with rows in some phases.
func restore(t *testing.T, extra string, rows ...plan.Row) restored {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	r := restored{slurm: writeSlurmCommands(t, t.TempDir()), where: in("ledger.db"), shared: in("shared"), config: in("bridge.toml")}
	book, release, err := assembly.TakeLedger(t.Context(), r.where)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	r.id = book.ID
	if err := errors.Join(book.Save(t.Context(), rows), book.Raise(t.Context(), 4)); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("server = \"http://127.0.0.1:1\"\nuser = \"ann\"\npassword_file = \"p\"\nlow_water = \"64m\"\nshared = %q\nledger = %q\n%s\n[slurm]\nbin = %q\n[queue.cpu]\n",
		r.shared, r.where, extra, r.slurm)
	if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// submits makes a job that waits, or one that was cancelled.
func (r restored) submits(t *testing.T, bundle, attempt, generation int, state sbatch.State) {
	t.Helper()
	r.slurm.add(t, sbatch.Job{
		Name:    fmt.Sprintf("cl-ann-%s.%d-%s", bundleNo(bundle)[2:14], attempt, r.id),
		State:   state,
		Comment: fmt.Sprintf("codalab bundle=%s attempt=%d owner=2 bridge=%s generation=%d", bundleNo(bundle), attempt, r.id, generation),
	})
}

// say returns the output of recover, with its varying parts replaced.
func (r restored) say(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(t, append([]string{"recover", "--config", r.config}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(r.where, "LEDGER", r.config, "CONFIG", r.id, "b1b2b3").Replace(out)
}

func rowAt(bundle int, phase plan.Phase, attempt int, generation int64) plan.Row {
	r := plan.Row{Bundle: bundleNo(bundle), Queue: "cpu", Phase: phase, Attempt: plan.Attempt{Number: attempt, Generation: generation}}
	if phase == plan.Finalizing {
		r.Verdict = &plan.Verdict{}
	}
	return r
}

// outdatedLedger knows four submissions, and Slurm shows nine.
func outdatedLedger(t *testing.T, extra string) restored {
	t.Helper()
	r := restore(t, extra, rowAt(1, plan.Staging, 0, 0), rowAt(2, plan.Queued, 1, 4), rowAt(3, plan.Finalizing, 1, 3), rowAt(5, plan.Staging, 0, 0))
	r.submits(t, 2, 1, 4, sbatch.StatePending)   // the row's own
	r.submits(t, 3, 1, 3, sbatch.StateCancelled) // the row's own
	r.submits(t, 4, 1, 2, sbatch.StateCancelled) // forgotten long ago
	r.submits(t, 4, 1, 5, sbatch.StateCancelled)
	r.submits(t, 4, 2, 6, sbatch.StatePending)
	r.submits(t, 1, 1, 7, sbatch.StatePending)
	r.submits(t, 5, 1, 8, sbatch.StateCancelled)
	r.submits(t, 3, 2, 9, sbatch.StatePending)
	foreign := r
	foreign.id = "ffffff"
	foreign.submits(t, 6, 1, 99, sbatch.StatePending)
	return r
}

const unknownJobs = `LEDGER, of bridge b1b2b3, knows 4 submissions; Slurm shows submission 9 as the last.

JOB  STATE      BUNDLE                              ATTEMPT  SUBMISSION  NAME                          WHAT BECOMES OF IT
4    CANCELLED  0x40000000000000000000000000000004  1        5           cl-ann-400000000000.1-b1b2b3  nothing: it has ended, and the ledger does not know its bundle
5    PENDING    0x40000000000000000000000000000004  2        6           cl-ann-400000000000.2-b1b2b3  the ledger does not know its bundle: cancelled after 10m0s
6    PENDING    0x10000000000000000000000000000001  1        7           cl-ann-100000000000.1-b1b2b3  taken up by its bundle, which waits to be submitted
7    CANCELLED  0x50000000000000000000000000000005  1        8           cl-ann-500000000000.1-b1b2b3  it has ended; its bundle takes up what it left when it is submitted again
8    PENDING    0x30000000000000000000000000000003  2        9           cl-ann-300000000000.2-b1b2b3  its bundle has gone on without it: cancelled after 10m0s

`

func TestI5RecoverListsWhatAnOldLedgerDoesNotKnow(t *testing.T) {
	t.Parallel()
	r := outdatedLedger(t, "")
	want := unknownJobs + `Nothing was changed. The bridge does not run on this ledger. Put a newer copy in its place if there is
one; else go on with this one by "cl-bridge recover --config CONFIG --accept".
`
	_, release, err := assembly.TakeLedger(t.Context(), r.where) // beside a bridge
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, r.say(t)); diff != "" {
		t.Errorf("recover (-want +got):\n%s", diff)
	}
	if _, err := command(t, "recover", "--accept", "--config", r.config); err == nil || !strings.Contains(err.Error(), "another cl-bridge works on it") {
		t.Errorf("accepted beside a bridge: %v", err)
	}
	release()
	if got := generation(t, r); got != 4 {
		t.Errorf("generation %d, want it unchanged", got)
	}
	want = unknownJobs + "Accepted: the ledger's next submission has a higher number than all of these. Start the bridge again.\n"
	if diff := cmp.Diff(want, r.say(t, "--accept")); diff != "" {
		t.Errorf("recover --accept (-want +got):\n%s", diff)
	}
	if got := generation(t, r); got != 9 {
		t.Errorf("generation %d, want 9", got)
	}
	again := r.say(t, "--accept")
	if !strings.Contains(again, "knows 9 submissions; Slurm shows no later one.") || !strings.HasSuffix(again, "there is nothing to accept.\n") {
		t.Errorf("accepted twice:\n%s", again)
	}
}

func TestRecoverPrintsJSON(t *testing.T) {
	t.Parallel()
	r := outdatedLedger(t, "cancel_strays = false")
	out, err := command(t, "recover", "--json", "--config", r.config)
	if err != nil {
		t.Fatal(err)
	}
	var got recovery.Findings
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Jobs) != 5 {
		t.Fatalf("jobs %+v, want 5", got.Jobs)
	}
	want := recovery.Job{
		Job: 6, State: sbatch.StatePending, Bundle: bundleNo(1), Attempt: 1, Generation: 7, Name: "cl-ann-100000000000.1-" + r.id,
		Phase: plan.Staging, Fate: "taken up by its bundle, which waits to be submitted",
	}
	if diff := cmp.Diff(want, got.Jobs[2]); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
	got.Jobs = nil
	if diff := cmp.Diff(recovery.Findings{Ledger: r.where, Bridge: r.id, Generation: 4, Highest: 9, Outdated: true}, got); diff != "" {
		t.Errorf("recovery (-want +got):\n%s", diff)
	}
}

func TestRecoverOfALedgerThatIsUpToDate(t *testing.T) {
	t.Parallel()
	r := restore(t, "", rowAt(1, plan.Running, 1, 4))
	r.submits(t, 1, 1, 4, sbatch.StatePending)
	want := "LEDGER, of bridge b1b2b3, knows 4 submissions; Slurm shows no later one.\nThe bridge runs on this ledger: there is nothing to accept.\n"
	for _, args := range [][]string{nil, {"--accept"}} {
		if diff := cmp.Diff(want, r.say(t, args...)); diff != "" {
			t.Errorf("recover %v (-want +got):\n%s", args, diff)
		}
	}
}

func TestRecoverThatCannotSayWhy(t *testing.T) {
	t.Parallel()
	r := restore(t, "")
	r.slurm.stop(t)
	without := restore(t, "")
	if err := os.RemoveAll(string(without.slurm)); err != nil {
		t.Fatal(err)
	}
	nowhere := filepath.Join(t.TempDir(), "x", "ledger.db")
	for _, test := range []struct {
		want string
		code int
		args []string
	}{
		{"no configuration: ", 2, nil},
		{"no such file", 2, []string{"--config", "/nosuch"}},
		{"unknown command", 2, []string{"--config", r.config, "extra"}},
		{"there is no ledger at " + nowhere, 1, []string{"--config", r.config, "--ledger", nowhere, "--accept"}},
		{"the database does not answer", 3, []string{"--config", r.config, "--ledger", "postgres://ann:secret@127.0.0.1:1/x?sslmode=disable"}},
		{"observe: ", 3, []string{"--config", r.config, "--accept"}},
		{"slurm.bin", 2, []string{"--config", without.config}},
	} {
		out, err := command(t, append([]string{"recover"}, test.args...)...)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") || out != "" {
			t.Errorf("recover %q: %v, %q; want %q", test.args, err, out, test.want)
		}
		if code := program.Code(context.Background(), err); code != test.code {
			t.Errorf("recover %q ends with %d, want %d", test.args, code, test.code)
		}
	}
	if _, err := os.Stat(filepath.Dir(nowhere)); !errors.Is(err, os.ErrNotExist) {
		t.Error("a directory was made for a ledger that is not there")
	}
}

func TestOldLedgersErrorNamesRecover(t *testing.T) {
	t.Parallel()
	old := fmt.Errorf("compare the ledger with Slurm: %w", plan.ErrOutdated)
	for place, want := range map[string]string{
		"": `"cl-bridge recover --config b.toml" lists`, "l.db": `"cl-bridge recover --config b.toml --ledger l.db" lists`,
		"postgres://ann:secret@db/x": `"cl-bridge recover --config b.toml --ledger URL" lists`,
	} {
		err := outdated(old, siteFlags{"b.toml", place})
		if !errors.Is(err, plan.ErrOutdated) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if err := outdated(context.Canceled, siteFlags{config: "b.toml"}); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "recover") {
		t.Errorf("another error became %v", err)
	}
}

func generation(t *testing.T, r restored) int64 {
	t.Helper()
	book, err := ledger.OpenToRead(t.Context(), r.where)
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	n, err := book.Generation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A row that has a newer job from the job's own record makes the ledger no newer.
func TestRecoverShowsAJobThatItsBundleHasFoundByItsRecords(t *testing.T) {
	t.Parallel()
	row := rowAt(2, plan.Running, 1, 4)
	row.Begun = &spool.Started{Token: "worker", Job: "1"}
	r := restore(t, "", row)
	r.submits(t, 2, 1, 5, sbatch.StateRunning)
	said := r.say(t)
	for _, want := range []string{"nothing: its bundle has found it by its records", "The bridge does not run on this ledger."} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
}
