package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Slurm's name of a node need not be its host's (slurm.conf(5): NodeHostname).
func TestNodeIsRecordedAsSlurmCallsIt(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	must(t, err)
	for _, test := range []struct{ env, want string }{{"SLURMD_NODENAME=gpu7", "gpu7"}, {"", host}} {
		x := prepare(t, "true", nil)
		x.cmd.Env = append(x.cmd.Env, test.env)
		x.succeed()
		if begun, err := x.attempt.ReadStarted(); err != nil || begun.Node != test.want {
			t.Errorf("recorded %+v, %v; want %s", begun, err, test.want)
		}
		probe := exec.Command(shipped.Path(t), "probe", "--json", "--scratch", x.spec.Scratch)
		probe.Env = []string{"PATH=/usr/bin:/bin", test.env}
		if said, _ := probe.Output(); !strings.Contains(string(said), fmt.Sprintf("\"node\": %q", test.want)) {
			t.Errorf("a probe says %s; want the node %s", said, test.want)
		}
	}
}
