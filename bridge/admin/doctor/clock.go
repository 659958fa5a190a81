package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/clocks"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// clockNotice is the difference of clocks from which on a check warns. Hosts with NTP differ by milliseconds.
const clockNotice = 5 * time.Second

// ntp is the advice about clocks.
const ntp = "let chronyd or systemd-timesyncd set the clocks of all hosts"

// mungeLimit is the age from which on munge refuses a credential, and Kerberos a request.
const mungeLimit = 5 * time.Minute

// clock judges a clock against this host's. It has failed from worst on.
func clock(name, whose string, o clocks.Offset, worst time.Duration, broken, skewed string) Check {
	found := fmt.Sprintf("%s is %s this host's", whose, o)
	switch by := o.Magnitude(); {
	case by >= worst:
		return probe.Fault(Failed, name, found, broken, ntp)
	case by >= clockNotice:
		return probe.Fault(Warning, name, found, skewed, ntp)
	}
	return ok(name, "%s", found)
}

// NodeClock judges the clock of a node.
func NodeClock(node string, o clocks.Offset) Check {
	return clock(nodeKey(node, "clock"), "the clock of "+node, o, mungeLimit,
		"munge and Kerberos refuse credentials from five minutes on: jobs do not start there, and disks with tickets refuse",
		"the times of runs on it are wrong by that; from five minutes on munge and Kerberos refuse its credentials")
}

// DiskClock judges the clock by which the shared disk notes the times of files.
func DiskClock(o clocks.Offset) Check {
	return clock("shared.clock", "the clock of the disk of shared", o, 24*time.Hour,
		"the ages of files are wrong by days: kept data may seem to be old, and purgers of the site remove it",
		"the times of files are wrong by that: make and rsync misjudge which file is newer; the bridge judges ages by the clock of the disk alone")
}

// ControllerClock judges the clock of slurmctld's host, by the time that it gave to a job.
func ControllerClock(o clocks.Offset) Check {
	return clock("slurm.clock", "slurmctld's clock", o, plan.ClockSlack,
		"the bridge does not know its own jobs again: a submission without an answer waits for ever, or is made twice",
		"sacct's times differ from the bridge's by that; from a minute on the bridge does not know its own jobs again")
}

// ServerClock judges the clock of the CodaLab server, or of a proxy in front of it.
func ServerClock(o clocks.Offset) Check {
	return clock("server.clock", "the server's clock", o, time.Minute,
		"CodaLab's own server counts running bundles as lost after a minute, and tokens of a sign-in end early or late",
		"bundles show wrong times; from a minute on CodaLab's own server counts running bundles as lost")
}

// askServerClock returns the server's clock by the header Date of its answer (RFC 9110, 6.6.1), in whole seconds.
func askServerClock(ctx context.Context, server string, now func() time.Time) (clocks.Offset, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/rest/user", http.NoBody)
	if err != nil {
		return clocks.Offset{}, fmt.Errorf("ask the server for its time: %w", err)
	}
	asked := now()
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return clocks.Offset{}, fmt.Errorf("ask the server for its time: %w", err)
	}
	answered := now()
	_ = answer.Body.Close() // only its header counts
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return clocks.Offset{}, errors.New("ask the server for its time: its answer has none")
	}
	return clocks.Between(asked, answered, date, time.Second), nil
}
