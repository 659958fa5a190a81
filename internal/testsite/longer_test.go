package testsite_test

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// What researchers ask their administrator for: a run goes on to the new limit of its job, also if the bridge is restarted.
// With signal, TERM comes ahead of a shorter limit, too.
func TestRunFollowsTheTimeLimitThatAnAdministratorGivesItsJob(t *testing.T) {
	t.Parallel()
	queues := "[queue.plain]\npartition = \"cpu\"\naccount = \"lab\"\nmax_time = \"20m\"\n" + preemptible
	s := own(t, testsite.Options{Config: often(""), Queues: queues})
	const waits = "echo up; until [ -e go ]; do sleep 0.2; done; echo done"
	longer := run(t, s, "plain", waits, "--request-time", "5m")
	admin(t, "scontrol", "update", "jobid="+begun(t, s, longer), "timelimit=+30")
	shorter := run(t, s, "timed", "trap 'echo saved > state; exit 0' TERM; echo up; while :; do sleep 0.1; done", "--request-time", "3m")
	admin(t, "scontrol", "update", "jobid="+begun(t, s, shorter), "timelimit=2")
	same := run(t, s, "plain", waits, "--request-time", "1m")
	changed := "The site has changed the job's time limit: "
	until(t, s, longer, "run_status", changed+`it is 30m0s longer than at first\.$`)
	until(t, s, shorter, "run_status", changed+`it is 3m0s shorter than at first\.$`)
	killed(t, s)
	until(t, s, same, "failure_message", `^Time limit exceeded\. \(Container uptime \S+ > time limit 1m0s\) Ask for more with --request-time\.$`)
	testenv.Must(t, s.GoOn(t.Context(), longer))
	ready(t, s, longer)
	if got := cl(t, s, "cat", longer+"/stdout"); got != "up\ndone" {
		t.Errorf("stdout %q", got)
	}
	if got := bridge(t, s, "explain", longer); !strings.Contains(got, "was changed: it is 30m0s longer than at first") {
		t.Errorf("explain:\n%s", got)
	}
	until(t, s, shorter, "failure_message", `^Time limit exceeded\. \(TERM at container uptime 5\S+, [0-2]\.\ds before the time limit 1m0s, `+
		`which the site has shortened from 3m0s\) Run it again, or ask the site's administrators\.$`)
	if got := cl(t, s, "cat", shorter+"/state"); got != "saved" {
		t.Errorf("state %q", got)
	}
}
