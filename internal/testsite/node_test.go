package testsite_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// misnamed is a cl-worker on hosts that all have the name of one node, n2: Slurm's names are others.
const misnamed = `#!/bin/sh
exec unshare --map-root-user --uts sh -ec 'hostname n2; exec %s "$@"' worker "$@"
`

// TestI10NodeWithAFullScratchIsAvoidedOnRealSlurm keeps n2 busy, so that the next bundles go to n1, whose
// scratch directory is full.
func TestI10NodeWithAFullScratchIsAvoidedOnRealSlurm(t *testing.T) {
	t.Parallel()
	need(t)
	dir := testenv.SharedDir(t)
	if err := os.Chmod(dir, 0o755); err != nil { // jobs are another user's
		t.Fatal(err)
	}
	scratch, worker := filepath.Join(dir, "scratch"), filepath.Join(dir, "cl-worker")
	if err := os.Mkdir(scratch, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(scratch, 0o777); err != nil {
		t.Fatal(err)
	}
	onNode(t, "n1", "mount -t tmpfs -o size=1m,mode=0777 none "+scratch+"; head -c 2m /dev/zero >"+scratch+"/others || true", "umount --lazy "+scratch)
	program, err := os.ReadFile(filepath.Join(testsite.Base, "bin/cl-worker"))
	if err != nil {
		t.Fatal(err)
	}
	testenv.WriteProgram(t, filepath.Join(dir, "real"), program)
	testenv.WriteProgram(t, worker, fmt.Appendf(nil, misnamed, filepath.Join(dir, "real")))
	s := own(t, testsite.Options{
		Config: fmt.Sprintf("worker = %q\n", worker) + often(""),
		Queues: fmt.Sprintf("\n[queue.cpu]\ndefault = true\npartition = \"cpu\"\nscratch = %q\ndefault_time = \"1h\"\n", scratch),
	})

	// A node has 64 CPUs.
	large := []string{"--request-cpus", "40"}
	holder := run(t, s, "cpu", "echo begun; while test ! -e go; do sleep 0.1; done", large...)
	until(t, s, holder, "state", "^running$")
	if remote := field(t, s, holder, "remote"); remote != "n2" {
		t.Errorf("the first bundle runs on %q, want n2: n1 is full", remote)
	}
	bundles := []string{holder}
	for range 2 {
		bundles = append(bundles, run(t, s, "cpu", "true", large...))
	}
	avoided := regexp.MustCompile(`(?m)^! Node n1: the commands of the last \d jobs on it did not start \(Node n1: make a private directory: .*\); it is avoided until \d\d:\d\d:\d\d\.$`)
	testenv.Await(t, "the status says that n1 is avoided, and why", func() bool { return avoided.MatchString(status(t, s)) })
	why := regexp.MustCompile(`^attempt 1 failed: Node n1: make a private directory: the disk of ` + scratch + ` is full: it has 0 KiB free \(the queue's scratch in the bridge's configuration\)\.$`)
	failed := slices.DeleteFunc(slices.Clone(bundles), func(bundle string) bool {
		return !slices.ContainsFunc(explain(t, s, bundle).History, func(e entry) bool { return why.MatchString(e.Reason) })
	})
	if len(failed) < 2 {
		t.Errorf("the history of %d bundles says why their commands did not start", len(failed))
	}
	for _, bundle := range failed {
		said := bridge(t, s, "explain", bundle)
		if bundle != holder && !regexp.MustCompile(`(?m)^  avoids +n1, where commands did not start$`).MatchString(said) {
			t.Errorf("explain says\n%s", said)
		}
	}
	testenv.Must(t, s.GoOn(t.Context(), holder))
	for _, bundle := range bundles {
		ready(t, s, bundle)
		if remote := field(t, s, bundle, "remote"); remote != "n2" {
			t.Errorf("it ran on %q, want n2", remote)
		}
	}
}

// onNode runs a command in a node's mount namespace, and another one at the end of the test.
func onNode(t *testing.T, node, command, end string) {
	t.Helper()
	slurmd, err := os.ReadFile(filepath.Join(filepath.Dir(slurmcluster.Chosen().Conf), "../run", "slurmd-"+node+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	namespace := "/proc/" + strings.TrimSpace(string(slurmd)) + "/ns/mnt"
	if of, own := link(t, namespace), link(t, "/proc/self/ns/mnt"); of == own {
		t.Skip("the cluster's nodes have no mounts of their own")
	}
	in := func(command string) error {
		said, err := exec.Command("nsenter", "--mount="+namespace, "sh", "-ec", command).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s on %s: %w: %s", command, node, err, strings.TrimSpace(string(said)))
		}
		return err
	}
	if err := in(command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in(end); err != nil {
			t.Error(err)
		}
	})
}

func link(t *testing.T, path string) string {
	t.Helper()
	to, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return to
}
