package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	pages "github.com/cl-slurm/cl-slurm/cmd/internal/metrics"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/exposition"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/metrics"
	"github.com/cl-slurm/cl-slurm/sbatch/callmetrics"
)

// running is a manager that makes passes.
type running struct {
	api  *client.Client
	loop *pilot.Manager
	// backend is the command of the batch system, and name distinguishes the user's managers.
	backend, name string
	// command is the command line that has status and kill.
	command string
	// calls are those of Slurm; nil for another backend.
	calls *callmetrics.Calls
}

// run makes passes until ctx ends.
func (m *manager) run(ctx context.Context, r running) error {
	if err := m.present(r.api, r.loop, r.name); err != nil {
		return err
	}
	of := metrics.Of(r.loop)
	page := pages.NewPage(metrics.Prefix, [][2]string{{"backend", r.backend}, {"manager", r.name}}, r.loop.Log, func(t *exposition.Text) {
		of.AddTo(t)
		if r.calls != nil {
			r.calls.AddTo(t)
		}
	})
	page.Address, page.File = m.metricsListen, m.metricsFile
	if err := page.Around(ctx, func() error { return runPresent(ctx, r.loop) }); err != nil {
		return err
	}
	if m.format != program.LogJSON {
		fmt.Fprintf(m.Stderr, "the workers continue: %s status lists them, and kill ends one\n", r.command)
	}
	return nil
}

// logger returns the manager's log.
func (m *manager) logger() *slog.Logger { return m.LogAs(m.format, m.verbose) }

// present gives a loop a presence on the server.
func (m *manager) present(api *client.Client, loop *pilot.Manager, name string) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the host's name: %w", err)
	}
	shape := loop.Shape
	report := codalab.CheckIn{Hostname: host, Tag: shape.Tag, TagExclusive: shape.Exclusive, CPUs: shape.CPUs, GPUs: shape.GPUs, MemoryBytes: shape.Memory, Secrets: true}
	if m.worker.group != "" {
		report.GroupName = &m.worker.group
	}
	loop.Presence = &pilot.Presence{Server: api, Name: "cl-worker-manager-" + name, Report: report, Log: loop.Log}
	return nil
}

// runPresent runs a loop and its presence.
func runPresent(ctx context.Context, loop *pilot.Manager) error {
	shown, stop := context.WithCancel(ctx)
	ended := background.Go(func() { loop.Presence.Run(shown) })
	defer func() {
		stop()
		<-ended
	}()
	return loop.Run(ctx)
}

// bound gives a loop the flags of the manager.
func (m *manager) bound(loop *pilot.Manager) {
	loop.NoFilter, loop.Min, loop.Max = m.noPrefilter, m.min, m.max
	loop.Pause, loop.Spacing = time.Duration(max(m.sleepSeconds, 1))*time.Second, time.Duration(m.spaceSeconds)*time.Second
	loop.Log = m.logger()
}

// address returns the server's address.
func (m *manager) address() (string, error) {
	server, err := account.Server(m.Process, m.server)
	return server, usage(err)
}
