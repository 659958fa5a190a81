package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/drain"
	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/spool"
)

const aboutDrain = `drain lets the bridge, or one queue of it, take no new bundles. Those that it has go on: they
are staged, submitted and run, and their results are delivered. The server is told at once, and
shows the reason to those whose bundles wait.

The order is a file in drain/ below the shared directory. It holds until "cl-bridge resume", also for a
bridge that is started later, and it may be given on any host that sees the directory. cl-bridge status
shows it, with the operator and the time.

drain waits for some seconds until a running bridge follows. With --wait it waits until the bridge has no
bundle left that is not done, such as before maintenance of the cluster.`

const aboutResume = `resume ends the order that "cl-bridge drain" gave for the bridge, or for one queue: bundles are
claimed again. An order for one queue stays when the bridge as a whole is resumed.`

// maxReason bounds an operator's reason, which the server and each waiting bundle show.
const maxReason = 200

// drainFlags are the flags of drain.
type drainFlags struct {
	reason string
	wait   bool
}

func drainCommand(p program.Process) *cobra.Command {
	var flags drainFlags
	cmd := orderCommand(p, "drain [QUEUE]", "Take no new bundles, and finish those that are there", aboutDrain,
		func(ctx context.Context, s *site, queue string) error { return s.drain(ctx, queue, flags) })
	cmd.Flags().StringVar(&flags.reason, "reason", "", "the `TEXT` that status and waiting bundles show")
	cmd.Flags().BoolVar(&flags.wait, "wait", false, "wait until no bundle is left")
	return cmd
}

func resumeCommand(p program.Process) *cobra.Command {
	return orderCommand(p, "resume [QUEUE]", "Take new bundles again", aboutResume,
		func(ctx context.Context, s *site, queue string) error { return s.resume(ctx, queue) })
}

// orderCommand returns a command whose argument is a queue, or none for the whole bridge.
func orderCommand(p program.Process, use, short, long string, run func(ctx context.Context, s *site, queue string) error) *cobra.Command {
	cmd := diskCommand(p, use, short, long, cobra.MaximumNArgs(1), func(ctx context.Context, s *site, args []string) error {
		return run(ctx, s, strings.Join(args, ""))
	})
	cmd.ValidArgsFunction = completeQueue(p, cmd)
	return cmd
}

// completeQueue completes the name of a configured queue.
func completeQueue(p program.Process, of *cobra.Command) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		s := &site{Process: p}
		s.flags.config, _ = of.Flags().GetString("config")
		if len(args) > 0 || s.readConfig() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return s.QueueNames(), cobra.ShellCompDirectiveNoFileComp
	}
}

// ordered is the result of drain and resume.
type ordered struct {
	// Given are the orders that hold now.
	Given []drain.Order `json:"orders"`
	// Running is set if a bridge runs, and Followed if it has shown that it follows.
	Running  bool `json:"running"`
	Followed bool `json:"followed"`
	// Left counts the bundles of the queue, or of all queues, that are not done.
	Left int `json:"bundles_left"`
}

func (s *site) drain(ctx context.Context, queue string, flags drainFlags) error {
	switch {
	case queue != "" && !slices.Contains(s.QueueNames(), queue):
		return program.Usage(fmt.Errorf("there is no queue %q: the configuration has %s", queue, strings.Join(s.QueueNames(), ", ")))
	case len(flags.reason) > maxReason:
		return program.Usage(fmt.Errorf("--reason has %d bytes, and may have %d: many people read it in one line", len(flags.reason), maxReason))
	}
	by, err := s.operator()
	if err != nil {
		return err
	}
	if err := drain.In(spool.Layout(s.Shared)).Give(drain.Order{Queue: queue, By: by, At: s.Now(), Reason: flags.reason}); err != nil {
		return err
	}
	found, err := s.follow(ctx, queue, true)
	if err != nil {
		return err
	}
	said := named(queue) + " is drained: no new bundle is claimed until \"" + strings.TrimSpace("cl-bridge resume "+queue) + "\".\n" + followText(found)
	if !flags.wait {
		return s.print(found, said)
	}
	if !s.json {
		if _, err := io.WriteString(s.Stdout, said); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		said = "No bundle is left.\n"
	}
	if err := s.awaitNone(ctx, queue, &found); err != nil {
		return err
	}
	return s.print(found, said)
}

func (s *site) resume(ctx context.Context, queue string) error {
	dir := drain.In(spool.Layout(s.Shared))
	given, err := dir.Withdraw(queue)
	if err != nil {
		return err
	}
	found, err := s.follow(ctx, queue, false)
	if err != nil {
		return err
	}
	said := named(queue) + " was not drained.\n"
	if given {
		said = named(queue) + " takes new bundles again.\n" + followText(found)
	}
	for _, o := range found.Given {
		if queue == "" || o.Queue == "" {
			said += named(o.Queue) + " stays drained " + o.String() + ".\n"
		}
	}
	return s.print(found, said)
}

func named(queue string) string {
	if queue == "" {
		return "The bridge"
	}
	return "Queue " + queue
}

func followText(o ordered) string {
	switch {
	case !o.Running:
		return "No bridge runs, or it has only begun to start; it follows this from its start.\n"
	case !o.Followed:
		return "The bridge has not shown yet that it follows: look at \"cl-bridge status\".\n"
	case o.Left == 0:
		return "The bridge follows. It has no bundles.\n"
	}
	return "The bridge follows. It has " + termtext.Count(o.Left, "bundle") + " to finish.\n"
}

// operator names who gives an order: the login, or before sudo the login of that time, and the host.
func (s *site) operator() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	me, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("find the login: %w", err)
	}
	if before := s.Getenv("SUDO_USER"); before != "" && before != me.Username {
		return fmt.Sprintf("%s (as %s)@%s", before, me.Username, host), nil
	}
	return me.Username + "@" + host, nil
}

// A bridge looks for orders every second, and on NFS with each renewal of its lease.
const followWithin, followEvery = 45 * time.Second, 500 * time.Millisecond

// follow waits until the running bridge shows that it follows the orders, or for followWithin.
func (s *site) follow(ctx context.Context, queue string, drained bool) (ordered, error) {
	waiting, stop := context.WithTimeout(ctx, followWithin)
	defer stop()
	for {
		found, shown, err := s.shown(queue)
		if err != nil || !found.Running {
			return found, err
		}
		orders := drain.Orders{}
		for _, o := range found.Given {
			orders[o.Queue] = o
		}
		found.Followed = drain.Followed(shown, orders, queue, s.QueueNames(), drained)
		if found.Followed || pause.For(waiting, followEvery) != nil {
			return found, ctx.Err()
		}
	}
}

// awaitNone waits until the running bridge has no bundle of a queue, or of any, that is not done.
func (s *site) awaitNone(ctx context.Context, queue string, found *ordered) error {
	for found.Left > 0 {
		if err := pause.For(ctx, time.Second); err != nil {
			return err
		}
		now, _, err := s.shown(queue)
		switch {
		case err != nil:
			return err
		case !now.Running:
			return fmt.Errorf("the bridge has ended, with %s left: the next one goes on with them", termtext.Count(now.Left, "bundle"))
		}
		found.Left, found.Given = now.Left, now.Given
	}
	return nil
}

// shown returns what the bridge has published of itself, and which queues it shows as drained.
func (s *site) shown(queue string) (ordered, map[string]string, error) {
	layout := spool.Layout(s.Shared)
	orders, err := drain.In(layout).Read(true)
	found := ordered{Given: orders.List()}
	if err != nil {
		return found, nil, err
	}
	state, err := lease.Read(layout.BridgeDir())
	if errors.Is(err, fs.ErrNotExist) || err == nil && state.Document == nil {
		return found, nil, nil
	}
	var published heartbeat.Status
	if err == nil {
		err = json.Unmarshal(state.Document, &published)
	}
	if err != nil {
		return found, nil, fmt.Errorf("read the bridge's heartbeat: %w", err)
	}
	for _, q := range published.Queues {
		for phase, n := range q.Phases {
			if (queue == "" || q.Queue == queue) && phase != plan.Done {
				found.Left += n
			}
		}
	}
	found.Running = !state.Ended && published.Last != nil && !published.OldAt(s.Now())
	if published.Last == nil {
		return found, nil, nil
	}
	return found, published.Last.Drained, nil
}
