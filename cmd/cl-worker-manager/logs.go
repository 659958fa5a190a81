package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/slurmbatch"
)

const aboutLogs = `logs prints a worker's log, also after its end: that of the worker that WORKER names, or
of the last one that has run BUNDLE.

WORKER is a worker's id, its hexadecimal digits or the beginning of them, or the
number of its job. BUNDLE is a bundle's uuid or the beginning of it.`

func (m *manager) logsCommand() *cobra.Command {
	var follow bool
	cmd := m.newWorkersCommand("logs WORKER|BUNDLE", "Print a worker's log", aboutLogs, cobra.ExactArgs(1),
		func(ctx context.Context, l *workersCommand, args []string) error {
			b, err := l.openBackend(l.Process, l.slurm())
			if err != nil {
				return err
			}
			name, err := l.logOf(ctx, b, args[0])
			if err != nil {
				return err
			}
			return l.printLog(ctx, b, name, follow)
		})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the worker has ended")
	return cmd
}

// logOf returns the name of the worker whose log the spec means.
func (l *workersCommand) logOf(ctx context.Context, b *slurmbatch.Backend, spec string) (string, error) {
	name, err := b.FindLog(spec)
	if err == nil || errors.Is(err, slurmbatch.ErrAmbiguous) {
		return name, err
	}
	_, loop, _, _, openErr := l.open(ctx)
	if openErr != nil {
		return "", errors.Join(err, openErr)
	}
	bundle, bundleErr := loop.Server.Bundle(ctx, spec)
	if bundleErr != nil {
		return "", fmt.Errorf("%w, and no bundle is found: %w", err, bundleErr)
	}
	remotes := append(slices.Clone(bundle.Metadata.Strings("remote_history")), bundle.Metadata.String("remote"))
	slices.Reverse(remotes)
	if name, err = b.FindLog(remotes...); err == nil {
		return name, nil
	}
	if name, err = b.FindPrinted(bundle.UUID); err != nil {
		return "", fmt.Errorf("no worker here has run bundle %s: %w", bundle.UUID, err)
	}
	return name, nil
}

const (
	// followEvery is the interval of reads of a followed log; askEvery is the interval of questions
	// to Slurm whether the worker has ended.
	followEvery = 300 * time.Millisecond
	askEvery    = 10 * time.Second
)

// printLog prints a log.
func (l *workersCommand) printLog(ctx context.Context, b *slurmbatch.Backend, name string, follow bool) error {
	var done int64
	var asked time.Time
	for ended := !follow; ; {
		n, err := printFrom(l.Stdout, b.Log(name), done)
		done += n
		switch {
		case errors.Is(err, fs.ErrNotExist) && !ended: // the job has not begun
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("worker %s has printed nothing yet", pilot.WorkerID(name))
		case err != nil:
			return err
		case ended:
			return nil
		}
		if err := pause.For(ctx, followEvery); err != nil {
			return err
		}
		if now := l.Now(); now.Sub(asked) >= askEvery {
			asked = now
			pilots, err := b.Pilots(ctx)
			ended = err == nil && !slices.ContainsFunc(alive(pilots), func(p pilot.Pilot) bool { return p.Name == name })
		}
	}
}

func printFrom(w io.Writer, path string, from int64) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // only read
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.Copy(w, file)
	if err != nil {
		return n, fmt.Errorf("print log: %w", err)
	}
	return n, nil
}
