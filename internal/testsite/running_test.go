package testsite_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// slowMount is a squashfuse that mounts no image before the file exists.
const slowMount = `#!/bin/sh
while test ! -e %[1]s/mount; do sleep 0.1; done
exec %[2]s "$@"
`

// slowWorker is a cl-worker that finds it.
const slowWorker = `#!/bin/sh
PATH=%[1]s/bin:$PATH exec %[1]s/cl-worker "$@"
`

// TestRunIsRunningWhenItsCommandHasBegunOnRealSlurm holds the mount of a bundle's image up. The bundle is
// preparing until its command begins, although its attempt has begun.
func TestRunIsRunningWhenItsCommandHasBegunOnRealSlurm(t *testing.T) {
	t.Parallel()
	need(t)
	dir := testenv.SharedDir(t)
	squashfuse, err := exec.LookPath("squashfuse_ll")
	if err != nil {
		t.Fatal(err) // need has found it
	}
	program, err := os.ReadFile(filepath.Join(testsite.Base, "bin/cl-worker"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{dir, filepath.Join(dir, "bin")} {
		_ = os.Mkdir(at, 0o755)
		if err := os.Chmod(at, 0o755); err != nil { // jobs are another user's
			t.Fatal(err)
		}
	}
	testenv.WriteProgram(t, filepath.Join(dir, "bin/squashfuse_ll"), fmt.Appendf(nil, slowMount, dir, squashfuse))
	testenv.WriteProgram(t, filepath.Join(dir, "cl-worker"), program)
	worker := filepath.Join(dir, "slow-worker")
	testenv.WriteProgram(t, worker, fmt.Appendf(nil, slowWorker, dir))
	s := own(t, testsite.Options{
		Config: fmt.Sprintf("worker = %q\n", worker),
		Queues: "\n[queue.cpu]\ndefault = true\npartition = \"cpu\"\naccount = \"lab\"\nruntime = \"builtin\"\ndefault_time = \"1h\"\n",
	})

	bundle := run(t, s, "cpu", "while test ! -e go; do sleep 0.1; done")
	status := until(t, s, bundle, "run_status", `^Setting the container up on n[12] \(Slurm job \d+\)\.$`)
	held := time.Now()
	node := strings.Fields(status)[5]
	if said := bridge(t, s, "explain", bundle); !strings.Contains(said, "the worker to set the container up and to begin the command") {
		t.Errorf("explain says\n%s", said)
	}
	if state := field(t, s, bundle, "state"); state != "preparing" {
		t.Errorf("state %s before the image is mounted, want preparing", state)
	}
	preparing := time.Since(held)
	if err := os.WriteFile(filepath.Join(dir, "mount"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	until(t, s, bundle, "state", "^running$")
	until(t, s, bundle, "run_status", `^Running job in container \(Slurm job \d+\)\.$`)
	if took, err := strconv.ParseFloat(field(t, s, bundle, "time_preparing"), 64); err != nil || took < preparing.Seconds() {
		t.Errorf("time_preparing %v, %v; the container alone took %s", took, err, preparing)
	}
	cl(t, s, "write", bundle+"/go", "go")
	ready(t, s, bundle)
	var began []string
	for _, e := range explain(t, s, bundle).History {
		if strings.Contains(e.Reason, " began on ") {
			began = append(began, e.Reason)
		}
	}
	if want := []string{"the attempt began on " + node, "the command began on " + node}; !slices.Equal(began, want) {
		t.Errorf("history %q, want %q", began, want)
	}
}
