package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

// notStarted is the exit record of a command that did not start.
func notStarted() *spool.Exit {
	return &spool.Exit{Token: "token-1", Cause: spool.CausePlatform, NotStarted: true, Failure: "Node n1: its disk is full."}
}

// failedOn returns the row of a bundle whose command did not start on a node, after so many failed starts.
func failedOn(bundle, node string, n int) plan.Row {
	r := plan.Row{FailedStarts: n, FailedNode: node}
	r.Bundle, r.LastFailure = bundle, "it does not start."
	return r
}

// The records come from nodes, and Slurm's node list may have several nodes.
func TestI10OnlyNamesOfNodesAreExcluded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ recorded, slurms, want string }{
		{"n1", "n1", "n1"},
		{"gpu-a100_07.cluster.example.org", "", "gpu-a100_07.cluster.example.org"},
		{"n1", "n2", "n1"}, // an administrator has requeued the job
		{"", "n3", "n3"},
		{"a host", "n3", "n3"},
		{"n[1-3]", "n3", "n3"},
		{"n1,n2", "n1", "n1"},
		{"/etc/passwd", "", ""},
		{"n1 --nodelist=n2", "", ""},
		{"", "n[1-3]", ""},
		{"", "", ""},
		{"n1\n", "None assigned", ""},
		{strings.Repeat("n", 300), "", ""},
	} {
		begun := *started()
		begun.Node = test.recorded
		b := given(t, rowIn(plan.Running), func(r *plan.Row) { r.Begun, r.Job.Nodes = &begun, test.slurms })
		b.decide(read(time.Second, &begun, notStarted())).is(plan.Staging)
		if got := (plan.Nodes{}).Exclude(b.now, b.row); got != test.want {
			t.Errorf("recorded %q, Slurm's %q: excluded %q, want %q", test.recorded, test.slurms, got, test.want)
		}
		var h plan.Health
		nodes := plan.Nodes{}
		for _, bundle := range []string{"0x1", "0x2"} {
			h.Learn(b.now, plan.Row{}, failedOn(bundle, b.row.FailedNode, 1), nodes)
		}
		if got := strings.Join(nodes.Avoided(b.now), ","); got != test.want {
			t.Errorf("recorded %q, Slurm's %q: avoided %q, want %q", test.recorded, test.slurms, got, test.want)
		}
	}
}

func TestNodeIsCalledAsSlurmCallsIt(t *testing.T) {
	t.Parallel()
	r := rowIn(plan.Running)
	r.Begun.Node = ""
	r.Job.Nodes = "n7"
	if got := r.Report("w").Remote; got != "n7" {
		t.Errorf("remote %q, want n7", got)
	}
	r.Begun = nil
	if got := r.Node(); got != "n7" {
		t.Errorf("the node of a job without a record is %q", got)
	}
}

// All nodes have the shared disk: no node is at fault, and another attempt may find room.
func TestI10FullSharedDiskIsNoNodesFault(t *testing.T) {
	t.Parallel()
	full := notStarted()
	full.SharedDiskFull = true
	b := given(t, rowIn(plan.Running)).decide(read(time.Second, started(), full)).is(plan.Staging)
	if got := (plan.Nodes{}).Exclude(b.now, b.row); got != "" || b.row.FailedStarts != 1 {
		t.Errorf("excluded %q after %d failed starts", got, b.row.FailedStarts)
	}
}

// A bundle that fails on every node may have a broken image.
func TestI10OneBundleThatStartsNowhereHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	var h plan.Health
	nodes := plan.Nodes{}
	fails := func(bundle, node string, n int) {
		h.Learn(epoch, failedOn(bundle, "", n-1), failedOn(bundle, node, n), nodes)
	}
	q := plan.Queue{Tag: "cpu"}
	for n, node := range []string{"n1", "n2", "n1", "n2", "n3"} {
		fails("0x1", node, n+1)
	}
	if avoided, held := nodes.Avoided(epoch), h.Held(q); len(avoided) > 0 || held != "" {
		t.Errorf("one bundle: %v are avoided, and the queue is held up: %q", avoided, held)
	}
	var sure plan.Health
	surely := plan.Nodes{}
	for n, node := range []string{"n1", "n1", "n2"} {
		after := failedOn("0x1", node, n+1)
		after.FailedSurely = true
		sure.Learn(epoch, failedOn("0x1", "", n), after, surely)
	}
	if avoided, held := surely.Avoided(epoch), sure.Held(q); len(avoided) != 1 || avoided[0] != "n1" || held == "" {
		t.Errorf("the nodes are surely at fault: %v are avoided, and the queue is held up: %q", avoided, held)
	}
	fails("0x2", "n2", 1)
	if avoided, held := nodes.Avoided(epoch), h.Held(q); len(avoided) != 1 || avoided[0] != "n2" || !strings.Contains(held, "no command has started on the nodes of queue cpu") {
		t.Errorf("two bundles: %v are avoided, and the queue is held up: %q", avoided, held)
	}
}
