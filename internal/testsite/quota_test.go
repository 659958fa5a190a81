package testsite_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// A run succeeds, and its results are larger than what is left of its owner's disk quota. They wait on the shared
// disk, where cl reads them, and are delivered when there is room. A bridge that is started again tries at once.
func TestResultsThatExceedTheQuotaWaitAndAreDelivered(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{})
	quota := func(size string) {
		must(t, s, filepath.Join(testsite.Base, "bin", "cl-server"), "user", "quota", "--data", filepath.Join(s.Dir, "server"), testsite.User, "--disk-quota", size)
	}
	quota("1m")
	bundle := run(t, s, "cpu", "echo trained; head -c 3000000 /dev/zero >model")
	status := until(t, s, bundle, "run_status", "larger than what is left")
	for _, want := range []string{
		"The results (2.9m in 3 entries) are larger than what is left of their owner's disk quota (1m): the end of stdout and stderr is at the server",
		"all files wait in " + filepath.Join(s.Shared, "runs", bundle) + "/", "cl kill ends the wait.",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in %q", want, status)
		}
	}
	testenv.Await(t, "Slurm has no job of it", func() bool { // the attempt's record is read before its job has ended
		return !strings.Contains(must(t, s, "squeue", "--me", "--noheader", "--format=%k"), bundle)
	})
	if state := field(t, s, bundle, "state"); state != "running" {
		t.Errorf("it is %s", state)
	}
	if got := cl(t, s, "cat", bundle+"/stdout"); got != "trained" {
		t.Errorf("stdout %q", got)
	}
	if err := s.StopBridge(); err != nil {
		t.Fatal(err)
	}
	quota("1g")
	if err := s.StartBridge(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready(t, s, bundle)
	if got := len(cl(t, s, "cat", bundle+"/model")); got != 3_000_000 {
		t.Errorf("model has %d bytes", got)
	}
}
