package realsite_test

import (
	"fmt"
	"strings"
	"testing"
)

// Runs share a job on a node of its own kernel, with NFS's default options and cgroup v2: one takes more memory than it asked
// for, one is killed while it runs, and the others end well.
func TestRunsOfAPackEndEachByItself(t *testing.T) {
	s := realSite(t)
	const runs = 6
	command := `case {i} in
1) exec dd if=/dev/zero of=/dev/null bs=400M count=1;;
2) until test -e finish; do sleep 1; done;;
*) echo member {i};;
esac`
	s.cl(t, "run", "--request-queue", "packs", "--request-cpus", "1", "--request-memory", "64m", "--name", "pack-{i}", "--sweep", "pack", "--each", fmt.Sprintf("i=1..%d", runs), command)
	bundles := make([]string, runs+1)
	for i := 1; i <= runs; i++ {
		bundles[i] = s.cl(t, "search", ".mine", fmt.Sprint("name=pack-", i), "--uuid-only")
	}
	s.until(t, bundles[2], "running")
	s.cl(t, "kill", bundles[2])
	if state := s.ended(t, bundles[2]); state != "killed" {
		t.Errorf("the killed run is %s", state)
	}
	if state := s.ended(t, bundles[1]); state != "failed" {
		t.Errorf("the run that takes too much is %s", state)
	}
	if got := s.field(t, bundles[1], "failure_message"); !strings.Contains(got, "Memory limit 64m exceeded") {
		t.Errorf("failure_message %q", got)
	}
	for i := 3; i <= runs; i++ {
		s.ready(t, bundles[i])
		if got := s.cl(t, "cat", bundles[i]+"/stdout"); got != fmt.Sprint("member ", i) {
			t.Errorf("run %d printed %q", i, got)
		}
	}
	t.Log(s.on(t, login, "sacct --allocations --noheader --starttime=now-1hour --format=JobID,State,ExitCode,NodeList,Comment%60 | grep pack="))
}
