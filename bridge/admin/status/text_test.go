package status

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
)

func TestQueuesOfTheSameLimitsShareALine(t *testing.T) {
	t.Parallel()
	h := &heartbeat.Heartbeat{}
	if got := limits(h); got != "" {
		t.Errorf("without limits: %q", got)
	}
	h.Limits = map[string][]string{"gpu": {"account lab: 38 of 40 jobs run", "x"}, "cpu": {"account lab: 38 of 40 jobs run", "x"}, "big": {"QOS big: at most 1 job run"}}
	h.LimitsUnknown = "Access/permission denied"
	want := "Limits of queue big: QOS big: at most 1 job run.\nLimits of queues cpu, gpu: account lab: 38 of 40 jobs run; x.\n" +
		"Not all limits of QOS and associations are known: Access/permission denied.\n"
	if got := limits(h); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
