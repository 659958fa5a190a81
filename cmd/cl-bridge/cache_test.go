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

	"github.com/cl-slurm/cl-slurm/bridge/pins"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// stocked is a cache with an entry for each name, which its holder has pinned.
// Its site is that of restore, with a disk of its own.
func stocked(t *testing.T, r restored, holders map[string]cache.Holder) *cache.Cache {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cache")
	text, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	with := strings.Replace(string(text), "[slurm]", fmt.Sprintf("[cache]\ndir = %q\nsettle = \"0s\"\nmin_free = \"1m\"\n[slurm]", dir), 1)
	if err := os.WriteFile(r.config, []byte(with), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := cache.Open(dir, cache.Options{Settle: -1})
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range holders {
		_, err := c.Get(t.Context(), cache.Want{Key: cache.Key{Kind: "bundle", ID: name}, Holder: h, Owner: "ann"}, func(_ context.Context, tmp string) error {
			return os.WriteFile(tmp, []byte(name), 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func holdersOf(t *testing.T, c *cache.Cache) map[string]string {
	t.Helper()
	entries, err := c.Entries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]string{}
	for _, e := range entries {
		held[e.ID] = fmt.Sprint(e.Pins)
	}
	return held
}

// Rows keep their inputs until their results are collected. This ledger must not judge
// the pins of another bridge, an older ledger or a person.
func TestPinsGoWhenTheirHolderIsOverAndForNoOtherReason(t *testing.T) {
	t.Parallel()
	row := func(n int, phase plan.Phase) plan.Row {
		return plan.Row{Bundle: bundleNo(n), Queue: "cpu", Phase: phase, DecidedAt: noon, Reason: "test"}
	}
	r := restore(t, "", row(1, plan.Staging), row(2, plan.Running), row(3, plan.Collecting), row(4, plan.Finalizing), row(5, plan.Done))
	r.submits(t, 2, 1, 1, sbatch.StatePending)
	forget(t, r, row(6, plan.Done))
	c := stocked(t, r, map[string]cache.Holder{
		"staging": pins.RowHolder(r.id, bundleNo(1)), "running": pins.RowHolder(r.id, bundleNo(2)), "collecting": pins.RowHolder(r.id, bundleNo(3)),
		"finalizing": pins.RowHolder(r.id, bundleNo(4)), "done": pins.RowHolder(r.id, bundleNo(5)), "forgotten": pins.RowHolder(r.id, bundleNo(6)),
		"unknown": pins.RowHolder(r.id, bundleNo(7)), "others": pins.RowHolder("abcdef", bundleNo(4)), "person": pins.PersonHolder("ann"),
	})
	out, err := command(t, "cache", "trim", "--config", r.config, "--json")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var said cache.Trimmed
	if err := json.Unmarshal([]byte(out), &said); err != nil || len(said.Dropped) != 3 {
		t.Errorf("dropped %v, %v; want 3", said.Dropped, err)
	}
	want := map[string]string{
		"staging": fmt.Sprintf("[row-%s-%s]", r.id, bundleNo(1)), "running": fmt.Sprintf("[row-%s-%s]", r.id, bundleNo(2)),
		"collecting": fmt.Sprintf("[row-%s-%s]", r.id, bundleNo(3)), "finalizing": "[]", "done": "[]", "forgotten": "[]",
		"unknown": fmt.Sprintf("[row-%s-%s]", r.id, bundleNo(7)), "others": fmt.Sprintf("[row-abcdef-%s]", bundleNo(4)), "person": "[user-ann]",
	}
	if diff := cmp.Diff(want, holdersOf(t, c)); diff != "" {
		t.Errorf("pins (-want +got):\n%s", diff)
	}
}

// forget has a ledger have a row, and forget it.
func forget(t *testing.T, r restored, row plan.Row) {
	t.Helper()
	book, release, err := assembly.TakeLedger(t.Context(), r.where)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	rows := []plan.Row{row}
	if err := errors.Join(book.Save(t.Context(), rows), book.Delete(t.Context(), rows[0])); err != nil {
		t.Fatal(err)
	}
}

func TestEntryPinnedForAJobStaysUntilTheJobHasEnded(t *testing.T) {
	t.Parallel()
	r := restore(t, "")
	c := stocked(t, r, map[string]cache.Holder{"data": ""})
	id := r.slurm.add(t, sbatch.Job{Name: "mine", State: sbatch.StatePending})
	run := func(args ...string) string {
		t.Helper()
		out, err := command(t, append(append([]string{"cache"}, args...), "--config", r.config)...)
		if err != nil {
			t.Fatalf("cache %v: %v: %s", args, err, out)
		}
		return out
	}
	run("pin", "data", "--job", id.String())
	run("trim", "--all")
	if got := holdersOf(t, c); len(got) != 1 || !strings.Contains(got["data"], "-"+id.String()+"]") {
		t.Fatalf("while the job waits the cache holds %v", got)
	}
	if out := run("pin"); !strings.Contains(out, "job-") {
		t.Errorf("cache pin lists %q", out)
	}
	// The job's input stays, even if it is damaged and the other bundles use another
	// content.
	entries, err := c.Entries(t.Context())
	if err == nil {
		err = os.Truncate(entries[0].Path, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Get(t.Context(), cache.Want{Key: entries[0].Key}, func(_ context.Context, tmp string) error { return os.WriteFile(tmp, []byte("data"), 0o600) })
	run("trim")
	run("trim")
	if _, there := os.Stat(entries[0].Path); err != nil || second == entries[0].Path || there != nil {
		t.Errorf("while the job waits: %v, %v", err, there)
	}
	r.slurm.setState(t, id, sbatch.StatePending, sbatch.StateCancelled)
	run("trim", "--all", "--dry-run")
	if got := holdersOf(t, c); len(got) != 1 {
		t.Errorf("a dry run left %v", got)
	}
	run("trim", "--all")
	if got := holdersOf(t, c); len(got) != 0 {
		t.Errorf("after the job the cache holds %v", got)
	}
}

func TestEmptyCacheIsAnEmptyList(t *testing.T) {
	t.Parallel()
	r := restore(t, "")
	for _, verb := range []string{"ls", "pin", "verify"} {
		if out, err := command(t, "cache", verb, "--json", "--config", r.config); err != nil || strings.TrimSpace(out) != "[]" {
			t.Errorf("%s: %v: %s", verb, err, out)
		}
	}
	if out, err := command(t, "cache", "trim", "--json", "--config", r.config); err != nil || strings.Contains(out, "null") {
		t.Errorf("trim: %v: %s", err, out)
	}
}

func TestCacheIsListedCountedPinnedAndVerified(t *testing.T) {
	t.Parallel()
	r := restore(t, "")
	c := stocked(t, r, map[string]cache.Holder{"one": "", "two": ""})
	out, err := command(t, "cache", "ls", "--config", r.config)
	if err != nil || strings.Count(out, "\n") != 3 || !strings.Contains(out, "NAME") || !strings.Contains(out, "two") {
		t.Errorf("ls: %v: %s", err, out)
	}
	out, err = command(t, "cache", "du", "--config", r.config)
	if err != nil || !strings.Contains(out, "2 entries") || !strings.Contains(out, "kind bundle") || !strings.Contains(out, "owner ann") {
		t.Errorf("du: %v: %s", err, out)
	}
	for _, args := range [][]string{{"one"}, {"one", "--drop"}} {
		if out, err := command(t, append([]string{"cache", "pin", "--config", r.config}, args...)...); err != nil {
			t.Errorf("pin %v: %v: %s", args, err, out)
		}
	}
	if got := holdersOf(t, c)["one"]; got != "[]" {
		t.Errorf("pinned and dropped, it is held by %s", got)
	}
	if out, err := command(t, "cache", "pin", "three", "--config", r.config); err == nil || !strings.Contains(err.Error(), `no entry is called "three"`) {
		t.Errorf("pin of what is not there: %v: %s", err, out)
	}
	for _, arg := range []string{"--drop", "--job=7", "o"} { // no entry, and a part of both names
		var wrong *program.Error
		if _, err := command(t, "cache", "pin", arg, "--config", r.config); !errors.As(err, &wrong) || wrong.Code != program.ExitUsage {
			t.Errorf("pin %s: %v, want a wrong command line", arg, err)
		}
	}
	entries, err := c.Entries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, "cache", "verify", "--config", r.config); err != nil || !strings.Contains(out, "2 entries") {
		t.Errorf("verify: %v: %s", err, out)
	}
	if err := c.Pin(t.Context(), entries[0].Key, false, pins.PersonHolder("ann")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(entries[0].Path, []byte("bad"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, "cache", "verify", "--config", r.config); err == nil || !strings.Contains(err.Error(), "1 of 2 entries are damaged") || !strings.Contains(out, entries[0].ID) {
		t.Errorf("verify of a damaged entry: %v: %s", err, out)
	}
	if len(holdersOf(t, c)) != 1 {
		t.Error("the damaged entry is still in use")
	}
	if out, err := command(t, "cache", "ls", "--config", r.config); err != nil || !strings.Contains(out, "retired") || !strings.Contains(out, "user-ann") {
		t.Errorf("ls of a retired content that is pinned: %v: %s", err, out)
	}
}
