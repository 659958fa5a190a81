package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/clocks"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// nodeKey returns the name of a check that is about a node, whatever the queue.
func nodeKey(node, name string) string { return "node." + node + "." + name }

// facts judges the node by what it is, apart from the queue: its kernel, its disks and its GPUs. Queues on one node have the
// same checks.
func facts(q plan.Queue, at Place, out Outcome) []Check {
	r := out.Report
	var checks []Check
	for _, c := range r.Checks(probe.Longest(longest(q))) {
		c.Name = nodeKey(r.Node, c.Name)
		if out.meetingDir != "" { // the directory stands for the shared one
			c.Found, c.Do = strings.ReplaceAll(c.Found, out.meetingDir, at.Shared), strings.ReplaceAll(c.Do, out.meetingDir, at.Shared)
		}
		checks = append(checks, c)
	}
	if r.Lost != "" {
		checks = worse(checks, probe.Fault(Failed, nodeKey(r.Node, "rename"), r.Lost, "records of runs seem to be lost for a moment, and runs seem to have failed",
			"name a directory on a disk with atomic link and rename, such as NFS, Lustre or GPFS"))
	}
	if r.Facts == nil {
		return checks
	}
	if c := sameIDs(at.IDs, r.Report); c.Name != "" {
		checks = worse(checks, c)
	}
	if o, known := nodeClock(at, out); known {
		checks = append(checks, NodeClock(r.Node, o))
	}
	return checks
}

// nodeClock returns the node's clock against this host's, by the message to it and by the times of files.
func nodeClock(at Place, out Outcome) (o clocks.Offset, known bool) {
	o, known = out.RoundTrip.Clock, out.RoundTrip.Known
	if at.DiskClock == nil || out.Report.Facts.DiskClock == nil {
		return o, known
	}
	byDisk := at.DiskClock.Less(*out.Report.Facts.DiskClock)
	if !known {
		return byDisk, true
	}
	return o.And(byDisk), true
}

// worse puts a check in the place of one of its name, or at the end.
func worse(checks []Check, c Check) []Check {
	checks = slices.DeleteFunc(checks, func(of Check) bool { return of.Name == c.Name })
	return append(checks, c)
}

// longest returns the time that a run of a queue may take; 0 means that it has no bound.
func longest(q plan.Queue) time.Duration {
	if q.MaxTime == 0 {
		return 0
	}
	return q.MaxTime + q.TimeGrace
}

// sameIDs compares the subordinate ids of this host with those of a node. The bridge removes files of these ids, which
// containers of killed workers leave.
func sameIDs(here string, r probe.Report) Check {
	there := r.Host.IDs.Version
	if r.Host.IDs.Lack != "" {
		there = ""
	}
	name := nodeKey(r.Node, "ids")
	const means = "the bridge cannot remove what containers of killed workers leave in its directories"
	switch {
	case there == "" || there == here:
		return Check{}
	case here == "":
		return probe.Fault(Warning, name, fmt.Sprintf("this account has the ids %s there, and none on this host", there), means, "give it the same ranges in /etc/subuid and /etc/subgid of all hosts, and install newuidmap here")
	}
	return probe.Fault(Warning, name, fmt.Sprintf("this account has the ids %s there, and %s on this host", there, here), means, "give it the same ranges in /etc/subuid and /etc/subgid of all hosts")
}
