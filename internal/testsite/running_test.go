package testsite_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// The programs with which the worker sets a container up on this site: a squashfuse that mounts no image while the
// first file exists and fails while the second one does, and a bubblewrap that waits in the same way.
const (
	heldMount = `#!/bin/sh
while test -e %[1]s/mount-waits; do sleep 0.1; done
test ! -e %[1]s/mount-fails && exec %[2]s "$@"
`
	heldBubblewrap = `#!/bin/sh
while test -e %[1]s/bubblewrap-waits; do sleep 0.1; done
exec %[2]s "$@"
`
	heldWorker = `#!/bin/sh
PATH=%[1]s/bin:$PATH exec %[1]s/cl-worker "$@"
`
)

// TestRunIsRunningWhenItsCommandHasBegunOnRealSlurm holds containers up: one while squashfuse mounts its image, one
// while its image is unpacked. A bundle is preparing until its command begins, although its attempt has begun.
func TestRunIsRunningWhenItsCommandHasBegunOnRealSlurm(t *testing.T) {
	t.Parallel()
	need(t)
	dir := testenv.SharedDir(t)
	bin := filepath.Join(dir, "bin")
	if err := errors.Join(os.Mkdir(bin, 0o755), os.Chmod(bin, 0o755)); err != nil { // jobs are another user's
		t.Fatal(err)
	}
	worker, err := os.ReadFile(filepath.Join(testsite.Base, "bin/cl-worker"))
	if err != nil {
		t.Fatal(err)
	}
	testenv.WriteProgram(t, filepath.Join(dir, "cl-worker"), worker)
	testenv.WriteProgram(t, filepath.Join(dir, "held-worker"), fmt.Appendf(nil, heldWorker, dir))
	for name, script := range map[string]string{"squashfuse_ll": heldMount, "bwrap": heldBubblewrap} {
		program, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err) // need has found it
		}
		testenv.WriteProgram(t, filepath.Join(bin, name), fmt.Appendf(nil, script, dir, program))
	}
	s := own(t, testsite.Options{
		Config: fmt.Sprintf("worker = %q\n", filepath.Join(dir, "held-worker")),
		Queues: "\n[queue.cpu]\ndefault = true\npartition = \"cpu\"\naccount = \"lab\"\nruntime = \"builtin\"\ndefault_time = \"1h\"\n",
	})
	for _, c := range []struct{ doing, holds, fails string }{
		{"Setting the container up", "mount-waits", ""},
		{"Unpacking the image", "bubblewrap-waits", "mount-fails"},
	} {
		for _, name := range []string{c.holds, c.fails} {
			if name == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		beginsLate(t, s, c.doing, filepath.Join(dir, c.holds))
	}
}

// beginsLate runs a bundle whose node does something, as run_status says, until a file is removed.
func beginsLate(t *testing.T, s *testsite.Site, doing, held string) {
	t.Helper()
	bundle := run(t, s, "cpu", "while test ! -e go; do sleep 0.1; done")
	status := until(t, s, bundle, "run_status", "^"+doing+` on n[12] \(Slurm job \d+\)\.$`)
	since := time.Now()
	node := regexp.MustCompile(`n[12]`).FindString(strings.TrimPrefix(status, doing))
	if said := bridge(t, s, "explain", bundle); !strings.Contains(said, "the worker to set the container up and to begin the command") {
		t.Errorf("%s: explain says\n%s", doing, said)
	}
	if state := field(t, s, bundle, "state"); state != "preparing" {
		t.Errorf("%s: state %s, want preparing", doing, state)
	}
	atLeast := time.Since(since)
	if err := os.Remove(held); err != nil {
		t.Fatal(err)
	}
	until(t, s, bundle, "state", "^running$")
	until(t, s, bundle, "run_status", `^Running job in container \(Slurm job \d+\)\.$`)
	if took, err := strconv.ParseFloat(field(t, s, bundle, "time_preparing"), 64); err != nil || took < atLeast.Seconds() {
		t.Errorf("%s: time_preparing %v, %v; that alone took %s", doing, took, err, atLeast)
	}
	testenv.Must(t, s.GoOn(t.Context(), bundle))
	ready(t, s, bundle)
	var began []string
	for _, e := range explain(t, s, bundle).History {
		if strings.Contains(e.Reason, " began on ") {
			began = append(began, e.Reason)
		}
	}
	if want := []string{"the attempt began on " + node, "the command began on " + node}; !slices.Equal(began, want) {
		t.Errorf("%s: history %q, want %q", doing, began, want)
	}
}
