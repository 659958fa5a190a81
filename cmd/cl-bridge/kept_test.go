package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/spool"
)

// keeper is a shared disk with kept results of six bundles, and a server that
// has the first three.
type keeper struct {
	*testing.T
	layout spool.Layout
	config string
	server *httptest.Server
}

// startServer starts a server with the user ann, whose password is secret.
func startServer(t *testing.T, dir string) (*store.Store, store.User, *httptest.Server) {
	t.Helper()
	data, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	hashed := server.HashPassword("secret", server.PasswordCost{Passes: 1, KiB: 8})
	user := store.User{ID: codalab.NewUUID(), Name: "ann", Password: hashed, TimeQuota: 1 << 40, DiskQuota: 1 << 40, ParallelRunQuota: 100}
	if err := data.AddUser(t.Context(), user); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := server.New(server.Config{Store: data, Now: time.Now, PasswordCost: server.PasswordCost{Passes: 1, KiB: 8}})
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	web := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		web.Close()
		stop()
		if err := errors.Join(<-done, data.Close()); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return data, user, web
}

// newKeeper has a ledger with these rows.
func newKeeper(t *testing.T, rows ...plan.Row) *keeper {
	t.Helper()
	dir := t.TempDir()
	data, user, web := startServer(t, filepath.Join(dir, "server"))
	for n := range 3 {
		b := store.Bundle{
			UUID: bundleNo(n + 1), Type: codalab.TypeRun, State: codalab.StateReady, OwnerID: user.ID, Metadata: codalab.Metadata{"name": fmt.Sprintf("train-%d", n+1)},
		}
		if err := data.CreateBundle(t.Context(), b, ""); err != nil {
			t.Fatal(err)
		}
	}
	k := &keeper{T: t, layout: spool.Layout(filepath.Join(dir, "shared")), config: filepath.Join(dir, "bridge.toml"), server: web}
	for n, name := range []string{bundleNo(1), bundleNo(2), bundleNo(2) + ".1", bundleNo(3), bundleNo(7), bundleNo(8), ".removing-" + bundleNo(9)} {
		path := filepath.Join(k.layout.KeptDir(name), "sub", "model")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, make([]byte, 100*(n+1)), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	password, where := filepath.Join(dir, "password"), filepath.Join(dir, "ledger.db")
	text := fmt.Sprintf("server = %q\nuser = \"ann\"\npassword_file = %q\nshared = %q\nledger = %q\n[queue.cpu]\n", k.server.URL, password, k.layout, where)
	if err := errors.Join(os.WriteFile(password, []byte("secret\n"), 0o600), os.WriteFile(k.config, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	book, release, err := assembly.TakeLedger(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := book.Save(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *keeper) kept(args ...string) (string, error) {
	k.Helper()
	out, err := command(k.T, append([]string{"kept", args[0], "--config", k.config}, args[1:]...)...)
	return strings.ReplaceAll(out, string(k.layout), "SHARED"), err
}

// there are the directories of kept results.
func (k *keeper) there() string {
	k.Helper()
	entries, err := os.ReadDir(k.layout.KeptDirs())
	if err != nil {
		k.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return short(strings.Join(names, " "))
}

// short makes 0x1 of the UUID of the first bundle.
func short(text string) string {
	for n := range 10 {
		text = strings.ReplaceAll(text, bundleNo(n), fmt.Sprintf("0x%d", n))
	}
	return text
}

func depends(bundle, on int, phase plan.Phase) plan.Row {
	r := rowAt(bundle, phase, 1, int64(bundle))
	r.Run = &codalab.RunBundle{UUID: r.Bundle, Dependencies: []codalab.RunDependency{{Dependency: codalab.Dependency{ParentUUID: bundleNo(on)}}}}
	return r
}

const allKept = ".removing-0x9 0x1 0x2 0x2.1 0x3 0x7 0x8"

func TestKeptResultsAreListedWithWhatTheServerHas(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	out, err := k.kept("ls")
	if err != nil {
		t.Fatal(err)
	}
	out = short(out)
	for _, want := range []string{
		"BUNDLE SERVER SIZE ENTRIES NAME", "0x1 ready 100 2 train-1", "0x2.1 ready 300 2 train-2", "0x7 deleted 500 2", "removing-0x9 deleted 700 2",
		"2.7k in all, in SHARED/kept",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	asJSON, err := k.kept("ls", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var found []map[string]any
	if err := json.Unmarshal([]byte(asJSON), &found); err != nil || len(found) != 7 {
		t.Fatalf("%s: %v", asJSON, err)
	}
	want := map[string]any{
		"bundle": bundleNo(2), "directory": "SHARED/kept/" + bundleNo(2) + ".1", "bytes": 300.0, "entries": 2.0,
		"superseded": true, "removing": false, "deleted": false, "state": "ready", "name": "train-2",
	}
	if diff := cmp.Diff(want, found[3]); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	k.server.Close()
	out, err = k.kept("ls")
	if program.Code(t.Context(), err) != program.ExitTransient || !strings.Contains(out, "?") || strings.Contains(out, "deleted") {
		t.Errorf("with a server that is away: %v:\n%s", err, out)
	}
}

func TestKeptResultsOfDeletedBundlesAreRemoved(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, depends(5, 8, plan.Queued), depends(6, 7, plan.Finalizing), rowAt(9, plan.Done, 1, 22))
	out, err := k.kept("rm", "--deleted", "-n")
	if err == nil || strings.Count(out, "would be removed") != 2 || !strings.Contains(out, "in use: bundle "+bundleNo(5)+" depends on it") || k.there() != allKept {
		t.Errorf("dry run: %v, left %q:\n%s", err, k.there(), out)
	}
	out, err = k.kept("rm", "--deleted")
	if err == nil || program.Code(t.Context(), err) != program.ExitFailure || !strings.Contains(err.Error(), "1 of 3 were not removed") ||
		strings.Count(out, "  removed\n") != 2 || k.there() != "0x1 0x2 0x2.1 0x3 0x8" {
		t.Errorf("%v, left %q:\n%s", err, k.there(), out)
	}
}

func TestKeptCommandsLeaveOthersDirectoriesAlone(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	for _, name := range []string{"mydata", bundleNo(7) + "-backup"} {
		if err := os.Mkdir(k.layout.KeptDir(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := k.kept("ls")
	if err != nil || strings.Contains(listed, "mydata") || strings.Contains(listed, "backup") {
		t.Errorf("listed: %v:\n%s", err, listed)
	}
	for _, args := range [][]string{{"rm", bundleNo(7)}, {"rm", "--deleted"}} {
		if out, err := k.kept(args...); err != nil || strings.Contains(out, "mydata") || strings.Contains(out, "backup") {
			t.Errorf("%q: %v:\n%s", args, err, out)
		}
	}
	if want := "0x1 0x2 0x2.1 0x3 0x7-backup mydata"; k.there() != want {
		t.Errorf("left %q, want %q", k.there(), want)
	}
}

func TestNothingIsRemovedWhenTheServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(k *keeper){
		"away": func(k *keeper) { k.server.Close() },
		"another password": func(k *keeper) {
			if err := os.WriteFile(filepath.Join(filepath.Dir(k.config), "password"), []byte("wrong"), 0o600); err != nil {
				k.Fatal(err)
			}
		},
	} {
		k := newKeeper(t)
		stop(k)
		if _, err := k.kept("rm", "--deleted"); err == nil || k.there() != allKept {
			t.Errorf("%s: %v, left %q", name, err, k.there())
		}
	}
}

func TestKeptResultsOfNamedBundlesAreRemoved(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, depends(5, 1, plan.Claiming), rowAt(3, plan.Collecting, 1, 21))
	k.server.Close() // it need not be asked
	for _, test := range []struct {
		args  []string
		code  int
		said  string
		there string
	}{
		{[]string{}, program.ExitUsage, "want the UUIDs", allKept},
		{[]string{bundleNo(2), "--deleted"}, program.ExitUsage, "want the UUIDs", allKept},
		{[]string{"../x"}, program.ExitUsage, "is no UUID", allKept},
		{[]string{bundleNo(2) + "-../x"}, program.ExitUsage, "is no UUID", allKept},
		{[]string{bundleNo(4)}, program.ExitFailure, "no results of bundle " + bundleNo(4), allKept},
		{[]string{bundleNo(1)}, program.ExitFailure, "bundle " + bundleNo(5) + " depends on it", allKept},
		{[]string{bundleNo(3)}, program.ExitFailure, "the bundle is collecting", allKept},
		{[]string{bundleNo(2), bundleNo(9)}, 0, "removed", "0x1 0x3 0x7 0x8"},
	} {
		out, err := k.kept(append([]string{"rm"}, test.args...)...)
		if program.Code(t.Context(), err) != test.code || !strings.Contains(out+fmt.Sprint(err), test.said) || k.there() != test.there {
			t.Errorf("kept rm %q: %v, left %q:\n%s", test.args, err, k.there(), out)
		}
	}
}

// Somebody made a bundle with the UUID of a deleted one, and results of both are kept.
func TestI9KeptResultsOfTwoBundlesOfOneUUIDAreNotRemovedTogether(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.server.Close() // it need not be asked
	first, second := bundleNo(4)+"-"+strings.Repeat("a", 16), bundleNo(4)+"-"+strings.Repeat("b", 16)
	for _, name := range []string{first, first + ".1", second, bundleNo(3) + "-" + strings.Repeat("a", 16)} {
		if err := os.Mkdir(k.layout.KeptDir(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		remove, said string
		left         int
	}{
		{bundleNo(4), "results of several bundles of UUID " + bundleNo(4) + " are kept: name one of " + first + ", " + second, 3},
		{first, "removed", 1},
		{first, "no results of bundle " + first, 1},
		{bundleNo(3), "kept/" + bundleNo(3) + "  400  removed", 1}, // those of an earlier version, which had no digest
		{bundleNo(4), "removed", 0},
	} {
		out, err := k.kept("rm", test.remove)
		if left := strings.Count(k.there(), "0x4"); !strings.Contains(out+fmt.Sprint(err), test.said) || left != test.left {
			t.Errorf("kept rm %s: %v, left %q:\n%s", test.remove, err, k.there(), out)
		}
	}
}
