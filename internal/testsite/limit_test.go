package testsite_test

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// The QOS limited of the cluster lets its user have two jobs. Other tests may use it, too.
func TestBundlesWaitForALimitOfAQOSAndNeverFailForIt(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Queues: "[queue.few]\ndefault = true\npartition = \"short\"\naccount = \"lab\"\nqos = \"limited\"\nmax_time = \"5m\"\n"})
	const words = "the bridge's Slurm user with QOS limited: "
	said := ""
	testenv.Await(t, "status tells the limit", func() bool {
		said = bridge(t, s, "status")
		return strings.Contains(said, "Limits of queue few: "+words)
	}, &said)
	var bundles []string
	for range 4 {
		bundles = append(bundles, run(t, s, "few", "until test -e finish; do sleep 0.5; done"))
	}
	status := ""
	testenv.Await(t, "a bundle waits for the limit", func() bool {
		status = ""
		for _, bundle := range bundles {
			status += field(t, s, bundle, "run_status") + "\n"
		}
		return strings.Contains(status, "Waiting: the bridge's Slurm user may have 2 jobs with QOS limited in Slurm at once, and has 2.")
	}, &status)
	if out := bridge(t, s, "plan", "--request-queue", "few"); !strings.Contains(out, "The bridge's Slurm user may have 2 jobs with QOS limited in Slurm at once, and has 2.") {
		t.Errorf("plan says\n%s", out)
	}
	if out := bridge(t, s, "config", "check", "--live"); !strings.Contains(out, "queue.few.limits: "+words) {
		t.Errorf("config check --live says\n%s", out)
	}
	for _, bundle := range bundles {
		testenv.Await(t, "it ends", func() bool { permit(t, s, bundle); return field(t, s, bundle, "state") == "ready" })
	}
	if log := s.Log(); strings.Contains(log, "QOSMaxSubmitJobPerUserLimit") {
		t.Log("a job was refused, because other tests use the QOS as well")
	}
}
