package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/cmd/internal/tally"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// killCommand is bundle_cli.py: do_kill_command.
func (c *cli) killCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kill <bundle>...",
		Short: "End running bundles and keep what they have written",
		Long: "End running bundles and keep what they have written, and print the uuids of these\n" +
			"bundles. A sweep stands for its runs that have not ended.",
		Args: cobra.MinimumNArgs(1),
	}
	worksheet := c.worksheetFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.killBundles(cmd.Context(), *worksheet, args)
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

// killBundles kills the bundles that specs name.
func (c *cli) killBundles(ctx context.Context, worksheet string, specs []string) error {
	going := map[string]bool{}
	at, uuids, err := c.bundlesAndSweeps(ctx, worksheet, specs, func(b client.BundleInfo) bool {
		going[b.UUID] = !b.State.Final()
		return going[b.UUID]
	})
	if err != nil {
		return err
	}
	return c.killAll(ctx, at, uuids, going)
}

// killAll kills bundles, of which those in going have not ended, and prints the killed ones.
func (c *cli) killAll(ctx context.Context, at *workspace, uuids []string, going map[string]bool) error {
	k := &killing{at: at, killed: map[string]bool{}, refused: map[string]error{}}
	uuids = distinctInOrder(uuids)
	failure := k.kill(ctx, uuids, going)
	killed, unanswered := []string{}, []string{}
	for _, uuid := range uuids {
		why, refused := k.refused[uuid]
		switch {
		case k.killed[uuid]:
			killed = append(killed, uuid)
		case !refused:
			unanswered = append(unanswered, uuid)
		case len(uuids) == 1:
			failure = why
		default:
			c.warn("%s: %v", uuid, explain(why))
			if failure == nil {
				failure = &program.Error{Code: program.ExitFailure}
			}
		}
	}
	if len(unanswered) > 0 && len(killed) > 0 {
		c.warn("Not tried, or without an answer: %s", strings.Join(unanswered, " "))
	}
	if len(killed) == 0 && !c.asJSON {
		return failure
	}
	return errors.Join(c.printUUIDs(killed), failure)
}

// killing kills bundles with few calls. If one bundle of a call cannot be killed, cl-server kills none of them, and CodaLab's
// own server those before it.
type killing struct {
	at      *workspace
	killed  map[string]bool
	refused map[string]error
}

// kill kills bundles. Those in going have not ended. It first asks for the states of the others, because those that ended
// before must be told from those that are killed now. It fails if the server does not answer.
func (k *killing) kill(ctx context.Context, uuids []string, going map[string]bool) error {
	before := map[string]codalab.State{}
	others := slices.DeleteFunc(slices.Clone(uuids), func(uuid string) bool { return going[uuid] })
	if len(uuids) > 1 && len(others) > 0 {
		var err error
		if before, err = k.states(ctx, others); err != nil {
			return err
		}
	}
	if err := k.together(ctx, slices.DeleteFunc(slices.Clone(uuids), func(uuid string) bool { return ended(before[uuid]) })); err != nil {
		return err
	}
	for _, uuid := range others { // the server says why it does not kill these
		if !ended(before[uuid]) {
			continue
		}
		if err := k.together(ctx, []string{uuid}); err != nil {
			return err
		}
	}
	return nil
}

// together kills bundles that had not ended, with one call. If the server refuses that, they are tried in two halves.
func (k *killing) together(ctx context.Context, uuids []string) error {
	if len(uuids) == 0 {
		return nil
	}
	err := k.at.KillBundles(ctx, uuids...)
	switch {
	case err == nil:
		for _, uuid := range uuids {
			k.killed[uuid] = true
		}
		return nil
	case transient(err) || ctx.Err() != nil:
		return err
	case len(uuids) == 1:
		k.refused[uuids[0]] = err
		return nil
	}
	now, err := k.states(ctx, uuids)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(uuids), func(uuid string) bool {
		k.killed[uuid] = now[uuid] == codalab.StateKilled
		return k.killed[uuid]
	})
	half := (len(left) + 1) / 2
	if err := k.together(ctx, left[:half]); err != nil {
		return err
	}
	return k.together(ctx, left[half:])
}

// states returns the states of bundles; tally.Removed for one that is not there.
func (k *killing) states(ctx context.Context, uuids []string) (map[string]codalab.State, error) {
	sheet, err := k.at.worksheetUUID(ctx)
	if err != nil {
		return nil, err
	}
	found, gone, err := k.at.again(ctx, sheet, uuids, nil)
	states := map[string]codalab.State{}
	for _, b := range found {
		states[b.UUID] = b.State
	}
	for _, uuid := range gone {
		states[uuid] = tally.Removed
	}
	return states, err
}

// distinctInOrder removes repetitions.
func distinctInOrder(uuids []string) (distinct []string) {
	seen := map[string]bool{}
	for _, uuid := range uuids {
		if !seen[uuid] {
			seen[uuid] = true
			distinct = append(distinct, uuid)
		}
	}
	return distinct
}
