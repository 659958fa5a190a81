package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const queuesHelp = `List the queues that run your bundles. The name of a queue is the value for
--request-queue of cl run; bundles that name none go to the default ones.

run          the most that one run can have; with "or", there are several sizes
time         its time limit by default, and the longest one
now          the runs at work, those that wait, and the nodes without any job
wait         the time for which a new run probably waits: the median of the last
             ones, or of those that wait now if that is longer
serves       whose bundles run there
image        the image of a run that names none, without and with GPUs`

// queuesCommand has no counterpart in CodaLab's own cl.
func (c *cli) queuesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "queues", Short: "List the queues that run your bundles", Long: queuesHelp,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := c.workspace("")
			if err != nil {
				return err
			}
			queues, complete, err := at.queues(cmd.Context())
			if err != nil {
				return err
			}
			if !complete {
				c.warn("cl: %s is CodaLab's own server, or an old cl-server: it shows your own workers and those of your groups alone. "+
					"Other queues may serve you, too, and the queue of a bridge is as large as all of its nodes together.", at.Address())
			}
			if c.asJSON {
				return c.printJSON(append([]codalab.Queue{}, queues...))
			}
			return c.listQueues(queues)
		},
	}
}

// queues returns the queues that serve the user. On a server that has none to show, such as CodaLab's own, it makes them
// of the workers that the user may see, and complete is false.
func (w *workspace) queues(ctx context.Context) (queues []codalab.Queue, complete bool, err error) {
	queues, err = w.Queues(ctx)
	if !errors.Is(err, errors.ErrUnsupported) {
		return queues, true, err
	}
	workers, err := w.Workers(ctx)
	return queuesOf(workers), false, err
}

// queuesOf makes a queue of all workers with the same tag.
func queuesOf(workers []codalab.WorkerInfo) []codalab.Queue {
	type key struct {
		tag       string
		exclusive bool
	}
	byKey := map[key]*codalab.Queue{}
	for _, w := range workers {
		k := key{exclusive: w.TagExclusive}
		if w.Tag != nil {
			k.tag = *w.Tag
		}
		q := byKey[k]
		if q == nil {
			q = &codalab.Queue{Tag: k.tag, Default: !k.exclusive, Sizes: []codalab.NodeSize{}}
			byKey[k] = q
		}
		q.Workers++
		q.Running += int64(len(w.RunUUIDs))
		if size := (codalab.NodeSize{CPUs: w.CPUs, GPUs: w.GPUs, MemoryBytes: w.MemoryBytes}); !slices.Contains(q.Sizes, size) {
			q.Sizes = append(q.Sizes, size)
		}
	}
	var queues []codalab.Queue
	for _, q := range byKey {
		queues = append(queues, *q)
	}
	slices.SortFunc(queues, func(a, b codalab.Queue) int { // of one tag, the default one first
		if a.Tag == b.Tag && a.Default {
			return -1
		}
		return cmp.Or(strings.Compare(a.Tag, b.Tag), 1)
	})
	return queues
}

func (c *cli) listQueues(queues []codalab.Queue) error {
	var columns []column
	for _, name := range []string{"queue", "run", "time", "now", "wait", "serves", "image"} {
		columns = append(columns, column{name: name})
	}
	var rows [][]string
	for _, q := range queues {
		name := cmp.Or(q.Tag, "(no name)")
		if q.Default {
			name += " (default)"
		}
		wait := ""
		if q.ExpectedWait != nil {
			wait = "about " + codalab.FormatDuration(time.Duration(*q.ExpectedWait)*time.Second)
		}
		rows = append(rows, []string{name, q.SizesText(), q.LimitsText(), c.spellLoad(q), wait, q.Serves.String(), q.ImagesText()})
	}
	return printTable(c.Stdout, columns, rows)
}

// spellLoad spells the load of a queue, or the reason for which it takes no runs.
func (c *cli) spellLoad(q codalab.Queue) string {
	if q.AwaySince > 0 {
		return "away since " + clockTime(time.Unix(q.AwaySince, 0))
	}
	load := fmt.Sprintf("%d running", q.Running)
	if q.Waiting > 0 {
		load += fmt.Sprintf(", %d waiting", q.Waiting)
	}
	if q.Nodes > 0 {
		load += fmt.Sprintf(", %d of %s idle", q.IdleNodes, termtext.Count(q.Nodes, "node"))
	}
	if q.Closed != "" {
		load += "; takes no new ones: " + q.Closed
	}
	return load
}

// completeQueueFlag completes --request-queue.
func (c *cli) completeQueueFlag(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("request-queue", c.completeWith(func(ctx context.Context, begun string) ([]string, error) { // the flag is there
		at, err := c.workspace("")
		if err != nil {
			return nil, err
		}
		queues, _, err := at.queues(ctx)
		var words []string
		for _, q := range queues {
			if q.Tag == "" || slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(word, q.Tag+"\t") }) {
				continue
			}
			words = append(words, q.Tag+"\t"+q.SizesText())
		}
		if strings.HasPrefix(begun, "tag=") {
			for i := range words {
				words[i] = "tag=" + words[i]
			}
		}
		return words, err
	}))
}
