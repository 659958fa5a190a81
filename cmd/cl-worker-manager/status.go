package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/pilot"
)

const aboutStatus = `status lists the workers that have not ended, with their states in the batch system and
those of their runs on the server. Below them are the staged bundles that no worker of
the manager's shape can run, with the reason. It starts and changes nothing.`

func statusCommand(l *workersCommand) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "List workers, and bundles that no worker can run", Long: aboutStatus, Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return l.status(cmd.Context(), asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (l *workersCommand) status(ctx context.Context, asJSON bool) error {
	_, loop, s, err := l.open(ctx)
	if err != nil {
		return err
	}
	found, err := loop.Survey(ctx)
	if err != nil && found.Pilots == nil {
		return err
	}
	if !s.shaped { // no shape is known that bundles could fail to fit
		found.Misfits = found.Misfits[:0]
	}
	text := workersText(l.Now(), found)
	if err == nil {
		text += bundlesText(found, s)
	}
	return errors.Join(l.Print(asJSON, found, text), err)
}

func workersText(now time.Time, s pilot.Survey) string {
	if len(s.Pilots) == 0 {
		return "no workers\n"
	}
	rows := [][]string{{"worker", "job", "state", "reason", "node", "since", "runs", "cpus", "gpus", "last check-in"}}
	for _, p := range s.Pilots {
		rows = append(rows, statusRow(now, p))
	}
	return termtext.Table(rows)
}

func bundlesText(s pilot.Survey, r settings) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d staged at %s", s.Staged, r.Server)
	if r.shaped {
		fmt.Fprintf(&text, ", %d to %d workers", r.Min, r.Max)
	}
	text.WriteString("\n")
	for _, m := range s.Misfits {
		fmt.Fprintf(&text, "%s %s: no worker can run it: %s\n", m.UUID, termtext.OneLine(m.Name), termtext.OneLine(m.Reason))
	}
	return text.String()
}

// shortPart is the number of an id's digits that status prints.
const shortPart = 8

func shortName(name string) string {
	digits := pilot.ID(name)
	return digits[:min(shortPart, len(digits))]
}

func statusRow(now time.Time, p pilot.Shown) []string {
	since, runs, cpus, gpus, checkIn := "-", "-", "-", "-", "never"
	if !p.Since.IsZero() {
		since = termtext.Ago(now, p.Since)
	}
	if w := p.Worker; w != nil {
		runs, cpus, gpus = fmt.Sprint(len(w.RunUUIDs)), fmt.Sprintf("%d/%d", w.CPUsInUse, w.CPUs), fmt.Sprintf("%d/%d", w.GPUsInUse, w.GPUs)
		checkIn = termtext.Ago(now, time.Unix(w.CheckInTime, 0))
	}
	return []string{shortName(p.Name), cmp.Or(p.Job, "-"), p.State, termtext.Line(p.Reason), termtext.Line(p.Node), since, runs, cpus, gpus, checkIn}
}
