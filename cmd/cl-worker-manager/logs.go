package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/pilot"
)

const aboutLogs = `logs prints a worker's log, also after its end: that of the worker that WORKER names, or
of the last one that has run BUNDLE.

WORKER is a worker's id, its hexadecimal digits or the beginning of them, or the
batch system's name of its job. BUNDLE is a bundle's uuid or the beginning of it.`

func logsCommand(l *workersCommand) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "logs WORKER|BUNDLE", Short: "Print a worker's log", Long: aboutLogs, Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error { return l.logs(cmd.Context(), args[0], follow) },
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the worker has ended")
	return cmd
}

func (l *workersCommand) logs(ctx context.Context, spec string, follow bool) error {
	b, err := l.openFound(ctx)
	if err != nil {
		return err
	}
	pilots, err := b.Logged(ctx)
	if err != nil {
		return err
	}
	p, err := pilot.Find(pilots, spec)
	if errors.Is(err, pilot.ErrNotFound) {
		if err := silent(ctx, b, spec); err != nil {
			return err
		}
		p, err = l.ranBundle(ctx, b, pilots, spec)
	}
	if err != nil {
		return err
	}
	return b.WriteLog(ctx, l.Stdout, p, follow)
}

// silent returns an error if a text names a worker that has not ended: such a worker has no log yet.
func silent(ctx context.Context, b pilot.Backend, spec string) error {
	pilots, err := b.Pilots(ctx)
	if err != nil {
		return nil //nolint:nilerr // the text may name a bundle
	}
	p, err := pilot.Find(alive(pilots), spec)
	if err != nil {
		return nil //nolint:nilerr // the same
	}
	state := p.State
	if reason := cmp.Or(p.Trouble, p.Reason); reason != "" {
		state += ", " + termtext.OneLine(reason)
	}
	return fmt.Errorf("worker %s has printed nothing yet: it is %s", pilot.WorkerID(p.Name), state)
}

// ranBundle returns the last worker that has run a bundle.
func (l *workersCommand) ranBundle(ctx context.Context, b pilot.Backend, pilots []pilot.Pilot, spec string) (pilot.Pilot, error) {
	none := fmt.Errorf("there is no log of a worker %s", spec)
	_, loop, _, err := l.open(ctx)
	if err != nil {
		return pilot.Pilot{}, errors.Join(none, err)
	}
	bundle, err := loop.Server.Bundle(ctx, spec)
	switch {
	case codalab.IsStatus(err, http.StatusNotFound):
		return pilot.Pilot{}, fmt.Errorf("there is no worker with a log and no bundle %s; %s status lists the workers", spec, l.command())
	case err != nil:
		return pilot.Pilot{}, fmt.Errorf("%w, and no bundle is found: %w", none, err)
	}
	remotes := append(slices.Clone(bundle.Metadata.Strings("remote_history")), bundle.Metadata.String("remote"))
	slices.Reverse(remotes)
	p, err := pilot.Find(pilots, remotes...)
	if errors.Is(err, pilot.ErrNotFound) {
		p, err = pilot.FindPrinted(ctx, b, pilots, bundle.UUID)
	}
	if errors.Is(err, pilot.ErrNotFound) {
		return pilot.Pilot{}, fmt.Errorf("no worker here has run bundle %s: no log has %[1]s in it", bundle.UUID)
	}
	return p, err
}
