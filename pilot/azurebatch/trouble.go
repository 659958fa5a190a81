package azurebatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/pilot"
)

const (
	// stuckAfter is the time after which a task that waits makes the backend look at the pool.
	stuckAfter = 3 * time.Minute
	// askPoolEvery is the least time between two looks at the pool.
	askPoolEvery = time.Minute
	// A manager waits for patience if a person has to act, and for longPatience if the pool may grow by itself.
	patience     = 15 * time.Minute
	longPatience = time.Hour
)

// poolNotes is the last look at the job's pool.
type poolNotes struct {
	asked   time.Time
	trouble trouble
	pool    Pool
	failed  string // the last error that was logged
}

// trouble is a reason for which tasks wait. If it has no patience, they start by themselves in time.
type trouble struct {
	text     string
	patience time.Duration
}

// addTrouble tells pilots that have waited for long the reason, from their pool. It asks the service only if there are
// such pilots, once a minute.
func (b *Backend) addTrouble(ctx context.Context, pilots []pilot.Pilot) {
	now := b.Now()
	for i, p := range pilots {
		if p.Phase != pilot.Pending || p.Since.IsZero() || now.Sub(p.Since) < stuckAfter {
			continue
		}
		if b.pool.asked.IsZero() || now.Sub(b.pool.asked) >= askPoolEvery {
			b.lookAtPool(ctx)
		}
		switch t := b.pool.trouble; {
		case t.text == "":
		case t.patience == 0:
			pilots[i].Reason = t.text
		default:
			pilots[i].Trouble, pilots[i].Patience = t.text, t.patience
		}
	}
}

// lookAtPool asks for the job, its pool and the pool's nodes. Without an answer no trouble is known.
func (b *Backend) lookAtPool(ctx context.Context) {
	b.pool.asked = b.Now()
	t, p, err := b.Client.poolTrouble(ctx, b.Job, b.Shape)
	b.pool.trouble, b.pool.pool = t, p
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != b.pool.failed && b.Logger != nil {
		b.Logger.WarnContext(ctx, "the reason is not known for which workers wait", slog.String("error", text))
	}
	b.pool.failed = text
}

// checkGPUs refuses a start on a pool whose machines certainly have no GPU: the container would fail there.
func (b *Backend) checkGPUs(ctx context.Context) error {
	if b.Shape.GPUs == 0 {
		return nil
	}
	if b.pool.asked.IsZero() || b.Now().Sub(b.pool.asked) >= 10*askPoolEvery {
		b.lookAtPool(ctx)
	}
	return gpuProblem(b.pool.pool, b.Shape)
}

// The families of VM sizes with GPUs, and those of them whose GPUs are AMD's, for which Docker has no --gpus ("Sizes for
// virtual machines in Azure": GPU accelerated). NP has programmable arrays instead, and NG has GPUs of AMD alone.
var (
	sizesWithGPUs = regexp.MustCompile(`(?i)^(standard_)?n[cdv]\d`)
	sizesOfAMD    = regexp.MustCompile(`(?i)^(standard_)?(nv\d+as_v4|nd\d+\w*_mi\d+)`)
)

// gpuProblem returns an error if the shape asks for GPUs, and the pool's machines have none.
func gpuProblem(p Pool, s Shape) error {
	if s.GPUs == 0 || p.VMSize == "" || sizesWithGPUs.MatchString(p.VMSize) && !sizesOfAMD.MatchString(p.VMSize) {
		return nil
	}
	return fmt.Errorf("the machines of pool %s have the size %s, which has no GPU of NVIDIA, and --gpus asks for %d: use a job on a pool of NC or ND machines", p.ID, p.VMSize, s.GPUs)
}

// poolTrouble returns the reason for which the tasks of a job wait, in the service's words.
func (c *Client) poolTrouble(ctx context.Context, job string, s Shape) (trouble, Pool, error) {
	j, err := c.Job(ctx, job)
	if err != nil {
		return trouble{}, Pool{}, err
	}
	if j.State != "active" {
		return trouble{fmt.Sprintf("job %s is %s, and its tasks do not start", j.ID, j.State), longPatience}, Pool{}, nil
	}
	p, err := c.Pool(ctx, j.PoolInfo.PoolID)
	var refused *Error
	switch {
	case errors.As(err, &refused) && refused.Code == "PoolNotFound":
		return trouble{fmt.Sprintf("job %s is on the pool %s, which does not exist", j.ID, j.PoolInfo.PoolID), patience}, Pool{}, nil
	case err != nil:
		return trouble{}, Pool{}, err
	}
	if t := p.trouble(s); t.text != "" {
		return t, p, nil
	}
	t, err := c.nodeTrouble(ctx, p)
	return t, p, err
}

// trouble returns the trouble that a pool shows by itself.
func (p Pool) trouble(s Shape) trouble {
	switch err := gpuProblem(p, s); {
	case err != nil:
		return trouble{err.Error(), patience}
	case p.State != "" && p.State != "active":
		return trouble{fmt.Sprintf("pool %s is %s", p.ID, p.State), patience}
	case s.Slots > max(p.SlotsPerNode, 1):
		return trouble{fmt.Sprintf("a worker takes %d task slots, and the nodes of pool %s have %d", s.Slots, p.ID, max(p.SlotsPerNode, 1)), patience}
	case p.AutoScaleRun != nil && p.AutoScaleRun.Error != nil:
		return trouble{"the autoscale formula of pool " + p.ID + " fails: " + problems([]Problem{*p.AutoScaleRun.Error}), patience}
	}
	return trouble{}
}

// problems returns the service's words for errors of a pool.
func problems(list []Problem) string {
	parts := make([]string, len(list))
	for i, p := range list {
		parts[i] = strings.TrimSuffix(p.Code+": "+strings.TrimSuffix(p.Message, "."), ": ")
		for _, v := range p.Values {
			if v.Name == "Reason" || v.Name == "ProvisioningErrorDetail" || v.Name == "Message" {
				parts[i] += ": " + v.Value
			}
		}
	}
	return withoutSignature(strings.Join(parts, "; "))
}

// nodeTrouble returns the reason that a pool's nodes are. Texts about nodes that work have no numbers: the server writes
// each new text to the staged bundles.
func (c *Client) nodeTrouble(ctx context.Context, p Pool) (trouble, error) {
	n, err := c.NodeCounts(ctx, p.ID)
	if err != nil {
		return trouble{}, err
	}
	growth := ""
	if len(p.ResizeErrors) > 0 {
		growth = "pool " + p.ID + " cannot grow: " + problems(p.ResizeErrors)
	}
	switch {
	case n.Running+n.Idle > 0 && growth != "":
		return trouble{text: "the nodes of pool " + p.ID + " are busy, and " + growth}, nil
	case n.Idle > 0:
		return trouble{text: "pool " + p.ID + " has idle nodes"}, nil
	case n.Running > 0:
		return trouble{text: "the nodes of pool " + p.ID + " are busy"}, nil
	case growth != "":
		return trouble{growth, longPatience}, nil
	case p.AllocationState == "resizing":
		return trouble{text: "pool " + p.ID + " is resizing"}, nil
	case n.Total > n.lost():
		return trouble{text: "nodes of pool " + p.ID + " are starting"}, nil
	case n.Total == 0 && p.AutoScale:
		return trouble{"pool " + p.ID + " has no nodes: its autoscale formula asks for none so far", longPatience}, nil
	case n.Total == 0 && p.TargetDedicated+p.TargetLow == 0:
		return trouble{"pool " + p.ID + " has no nodes: its target is 0 nodes, and it does not scale by itself", patience}, nil
	case n.Total == 0:
		return trouble{"pool " + p.ID + " has no nodes yet", longPatience}, nil
	}
	return c.lostNodes(ctx, p, n)
}

// lostNodes returns the trouble of a pool without a node that takes tasks.
func (c *Client) lostNodes(ctx context.Context, p Pool, n NodeCounts) (trouble, error) {
	t := trouble{fmt.Sprintf("none of the %d nodes of pool %s takes tasks: %s", n.Total, p.ID, n.lostStates()), patience}
	if n.Preempted > 0 { // Azure brings them back when it has room
		t.patience = longPatience
	}
	nodes, err := c.Nodes(ctx, p.ID, "unusable", "starttaskfailed")
	if err == nil && len(nodes) > 0 {
		if why := nodes[0].trouble(); why != "" {
			t.text += "; " + nodes[0].ID + ": " + why
		}
	}
	return t, err
}

// byState returns the numbers of nodes that take no task, by state.
func (n NodeCounts) byState() []stateCount {
	return []stateCount{
		{n.Unusable, "unusable"},
		{n.StartTaskFailed, "starttaskfailed"},
		{n.Offline, "offline"},
		{n.Preempted, "preempted"},
		{n.Unknown, "unknown"},
		{n.LeavingPool, "leavingpool"},
		{n.Deallocated, "deallocated"},
		{n.Deallocating, "deallocating"},
	}
}

type stateCount struct {
	n     int
	state string
}

// lost returns the number of nodes that take no task.
func (n NodeCounts) lost() int {
	sum := 0
	for _, s := range n.byState() {
		sum += s.n
	}
	return sum
}

// lostStates names the numbers of nodes that take no task.
func (n NodeCounts) lostStates() string {
	var parts []string
	for _, s := range n.byState() {
		if s.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", s.n, s.state))
		}
	}
	return strings.Join(parts, ", ")
}

// trouble returns the service's words for a node's state.
func (n Node) trouble() string {
	switch {
	case len(n.Errors) > 0:
		e := n.Errors[0]
		return problems([]Problem{{Code: e.Code, Message: e.Message, Values: e.Details}})
	case n.StartTask == nil:
		return ""
	case n.StartTask.Failure != nil && n.StartTask.Failure.Code != "FailureExitCode":
		return "its start task failed: " + withoutSignature(n.StartTask.Failure.text())
	case n.StartTask.ExitCode != nil:
		return fmt.Sprintf("its start task failed with exit code %d", *n.StartTask.ExitCode)
	}
	return ""
}
