package azurebatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// Check tries all that a manager needs of the service and of the log container, and changes nothing.
func (b *Backend) Check(ctx context.Context) []pilot.Finding {
	j, err := b.Client.Job(ctx, b.Job)
	if err != nil {
		return []pilot.Finding{failed("account and job", err)}
	}
	found := []pilot.Finding{
		{Name: "account and job", OK: j.State == "active", Text: fmt.Sprintf("job %s of account %s is %s", j.ID, b.Client.account, j.State)},
		b.checkList(ctx),
		b.checkWrite(ctx),
	}
	found = append(found, b.checkPool(ctx, j.PoolInfo.PoolID)...)
	return append(found, b.checkLogs(ctx))
}

func failed(name string, err error) pilot.Finding {
	return pilot.Finding{Name: name, Text: err.Error()}
}

func (b *Backend) checkList(ctx context.Context) pilot.Finding {
	tasks, err := b.Client.ListTasks(ctx, b.Job, b.filter()+" and state ne 'completed'")
	if err != nil {
		return failed("list tasks", err)
	}
	return pilot.Finding{Name: "list tasks", OK: true, Text: fmt.Sprintf("workers of %s that have not ended: %d", b.Mark, len(b.ours(tasks)))}
}

// checkWrite ends a task that does not exist: only a login that may write gets the answer that there is none.
func (b *Backend) checkWrite(ctx context.Context) pilot.Finding {
	err := b.Client.Terminate(ctx, b.Job, b.NewName())
	if err != nil && !errors.Is(err, ErrTaskNotFound) {
		return failed("start and end tasks", err)
	}
	return pilot.Finding{Name: "start and end tasks", OK: true, Text: "the login may write"}
}

func (b *Backend) checkPool(ctx context.Context, id string) []pilot.Finding {
	p, err := b.Client.Pool(ctx, id)
	if err != nil {
		return []pilot.Finding{failed("pool", err)}
	}
	text := fmt.Sprintf("%s: %s of %s, %s each", p.ID, termtext.Count(p.CurrentDedicated+p.CurrentLow, "node"), p.VMSize, termtext.Count(max(p.SlotsPerNode, 1), "task slot"))
	t := p.trouble(b.Shape)
	if t.text == "" {
		if t, err = b.Client.nodeTrouble(ctx, p); err != nil {
			return []pilot.Finding{failed("pool", err)}
		}
	}
	// A pool that may grow by itself meets the need.
	found := []pilot.Finding{{Name: "pool", OK: t.patience == 0 || t.patience == longPatience && len(p.ResizeErrors) == 0, Text: strings.TrimPrefix(text+"; "+t.text, "; ")}}
	found[0].Text = strings.TrimSuffix(found[0].Text, "; ")
	docker := p.Machine != nil && p.Machine.Container != nil
	containers := pilot.Finding{Name: "containers", OK: docker, Text: "the nodes run containers"}
	if !docker {
		containers.Text = "the pool has no container configuration: make a pool with an image such as microsoft-azure-batch ubuntu-server-container"
	}
	found = append(found, containers)
	if b.Shape.GPUs > 0 && p.SlotsPerNode > max(b.Shape.Slots, 1) {
		found = append(found, pilot.Finding{Name: "GPUs", Text: fmt.Sprintf(
			"a node runs %d workers at once, and Docker gives all of them the same %d GPUs: let a worker take all slots (--task-slots %d)", p.SlotsPerNode/max(b.Shape.Slots, 1), b.Shape.GPUs, p.SlotsPerNode)})
	}
	return found
}

// checkLogs reads a blob that does not exist, and looks at the permissions in the SAS.
func (b *Backend) checkLogs(ctx context.Context) pilot.Finding {
	const name = "log container"
	if b.Shape.LogContainer == "" {
		return pilot.Finding{Name: name, OK: true, Text: "none: the log of a worker goes with its node (--log-container-url)"}
	}
	c, err := OpenLogContainer(b.Shape.LogContainer, b.Storage)
	if err != nil {
		return failed(name, err)
	}
	if _, err = c.Read(ctx, io.Discard, b.NewName()+"/none", 0); err != nil && !errors.Is(err, errNoBlob) {
		return failed(name, err)
	}
	permissions := c.address.Query().Get("sp") // empty if a policy of the container has them
	if permissions != "" && (!strings.Contains(permissions, "r") || !strings.Contains(permissions, "w")) {
		return pilot.Finding{Name: name, Text: fmt.Sprintf("the SAS of %s has the permissions %q, and logs need read, create and write (rcw)", c.Name(), permissions)}
	}
	text := c.Name()
	if end := c.Expires(); !end.IsZero() {
		text += ", until " + end.UTC().Format(time.RFC3339)
	}
	return pilot.Finding{Name: name, OK: true, Text: text}
}
