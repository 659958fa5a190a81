package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/pilot"
)

const aboutKill = `kill ends a worker: the batch system sends it TERM. The worker's runs are killed with
it, and the worker gives them back to the server, which stages them again. kill lists
these runs and asks for a confirmation. A running manager may start another worker.

WORKER is a worker's id, its hexadecimal digits or the beginning of them, or the
batch system's name of its job.`

func killCommand(l *workersCommand) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "kill WORKER", Short: "End a worker and its runs", Long: aboutKill, Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error { return l.kill(cmd.Context(), args[0], yes) },
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (l *workersCommand) kill(ctx context.Context, name string, yes bool) error {
	b, loop, _, openErr := l.open(ctx)
	if b == nil {
		return openErr
	}
	pilots, err := b.Pilots(ctx)
	if err != nil {
		return err
	}
	p, err := l.only(name, alive(pilot.Named(pilots, name)))
	if err != nil {
		return err
	}
	runs, err := []string(nil), openErr
	if err == nil {
		runs, err = runsOf(ctx, loop.Server, p)
	}
	fmt.Fprintf(l.Stderr, "worker %s, %s%s%s\n", pilot.WorkerID(p.Name), job(p.Job), p.State, on(p.Node))
	switch {
	case err != nil:
		fmt.Fprintf(l.Stderr, "which runs end with it is not known: %v\n", err)
	case len(runs) == 0:
		fmt.Fprintln(l.Stderr, "it has no runs")
	default:
		fmt.Fprintf(l.Stderr, "these end with it:\n  %s\n", strings.Join(runs, "\n  "))
	}
	if _, ok := b.(losesLog); ok {
		fmt.Fprintln(l.Stderr, "its log is removed with it: save it first with cl-worker-manager … logs")
	}
	if !yes {
		if err := l.confirm(); err != nil {
			return err
		}
	}
	if err := b.Stop(ctx, p); err != nil {
		return err
	}
	return l.Print(false, nil, pilot.WorkerID(p.Name)+"\n")
}

// losesLog is a backend whose Stop removes the log of a pilot.
type losesLog interface{ StopRemovesLog() }

func on(node string) string {
	if node == "" {
		return ""
	}
	return " on " + node
}

func job(id string) string {
	if id == "" {
		return ""
	}
	return "job " + id + ", "
}

func (l *workersCommand) only(name string, found []pilot.Pilot) (pilot.Pilot, error) {
	switch len(found) {
	case 0:
		return pilot.Pilot{}, fmt.Errorf("there is no worker %s that has not ended; %s status lists them", name, l.command())
	case 1:
		return found[0], nil
	}
	return pilot.Pilot{}, program.Usage(fmt.Errorf("%s may be %s or %s: write more of it", name, found[0].Name, found[1].Name))
}

// runsOf returns the runs of a worker, with their names.
func runsOf(ctx context.Context, server pilot.Server, p pilot.Pilot) ([]string, error) {
	workers, err := server.Workers(ctx)
	if err != nil {
		return nil, err
	}
	var runs []string
	for _, w := range workers {
		if w.WorkerID != pilot.WorkerID(p.Name) {
			continue
		}
		for _, uuid := range w.RunUUIDs {
			run := uuid
			if found, err := server.Bundle(ctx, uuid); err == nil {
				run += " " + found.Metadata.String("name")
			}
			runs = append(runs, run)
		}
	}
	return runs, nil
}

// confirm asks for a confirmation on the terminal.
func (l *workersCommand) confirm() error {
	stream, ok := l.Stdin.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(stream.Fd())) {
		return program.Usage(errors.New("nothing was ended: without a terminal, kill needs --yes"))
	}
	fmt.Fprint(l.Stderr, "End it? [y/N] ")
	answer, err := bufio.NewReader(l.Stdin).ReadString('\n')
	if err != nil || !strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y") {
		return errors.Join(errors.New("nothing was ended"), err)
	}
	return nil
}
