package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/sweep"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

const aboutSweep = `sweep removes from the shared directory what no bundle and no job needs any more:
working directories, records, members of submissions, versions of cl-worker,
rings of the doorbell and temporaries that a crash or an old ledger has left
behind. A running bridge does the same every hour.

It asks Slurm, the ledger and the disk's own clock, and removes nothing when one of
them does not answer, or when a job is newer than the ledger. What was changed
within sweep_grace stays, and so does what another bridge made or nothing says
whose it is, which is listed. It may be run beside a bridge. For the cache there is
cl-bridge cache trim.

Exit codes: 1 no ledger, an old one, or something could not be removed; 2 the
command line or the configuration is wrong; 3 Slurm or the ledger's server does
not answer.`

// sweepOptions are sweep's flags.
type sweepOptions struct {
	place
	dry, json bool
}

func sweepCommand(p program.Process) *cobra.Command {
	var o sweepOptions
	cmd := &cobra.Command{
		Use: "sweep", Short: "Remove from the shared directory what nobody needs any more", Long: aboutSweep,
		Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.read(p)
			if err != nil {
				return err
			}
			found, err := sweepOnce(cmd.Context(), p, c, o.dry)
			if err != nil && len(found) == 0 {
				return unavailable(outdated(err, o.config, o.ledger))
			}
			return errors.Join(reportSweep(p, o, found), err)
		},
	}
	o.flags(cmd, p)
	cmd.Flags().BoolVarP(&o.dry, "dry-run", "n", false, "list what would be removed, and remove nothing")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// sweepOnce sweeps beside the bridge that may be at work.
func sweepOnce(ctx context.Context, p program.Process, c config.Config, dry bool) ([]sweep.Finding, error) {
	reader, err := openToJudge(ctx, c.Ledger)
	if err != nil {
		return nil, err
	}
	defer reader.Close() //nolint:errcheck // it was only read
	slurm, err := findSlurm(ctx, p, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, &program.Error{Code: program.ExitUsage, Err: err}
	}
	s := sweeper(c, reader, slurm, nil, p.Now)
	if dry {
		found, err := s.Find(ctx)
		return found, slurmAway(err)
	}
	found, err := s.Sweep(ctx)
	return found, slurmAway(err)
}

// sweepFirst is when a bridge sweeps after its start, sweepEvery the pause
// between its sweeps.
const (
	sweepFirst = time.Minute
	sweepEvery = time.Hour
)

// sweeper sweeps the shared directory of a configuration, whose jobs run these
// workers.
func sweeper(c config.Config, book sweep.Ledger, slurm sweep.Scheduler, workers []string, now func() time.Time) *sweep.Sweeper {
	return &sweep.Sweeper{
		Ledger: book, Scheduler: slurm, Disk: spool.Disk{Layout: spool.Layout(c.Shared)},
		Workers: workers, Grace: c.SweepGrace.Duration, Now: now,
	}
}

// swept is what sweep prints in JSON.
type swept struct {
	DryRun   bool            `json:"dry_run"`
	Findings []sweep.Finding `json:"findings"`
}

// reportSweep prints what was found, and fails where something could not be
// removed.
func reportSweep(p program.Process, o sweepOptions, found []sweep.Finding) error {
	if o.json {
		if err := printJSON(p.Stdout, swept{DryRun: o.dry, Findings: append([]sweep.Finding{}, found...)}); err != nil {
			return err
		}
	} else if _, err := io.WriteString(p.Stdout, sweepText(found, o.dry)); err != nil {
		return err
	}
	failed := 0
	for _, f := range found {
		if f.Trouble != "" {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d leftovers could not be removed", failed, len(found))
	}
	return nil
}

// sweepText is what was found for people.
func sweepText(found []sweep.Finding, dry bool) string {
	rows := [][]string{{"", "KIND", "SIZE", "PATH", "WHY"}}
	var bytes int64
	gone := 0
	for _, f := range found {
		fate := "left"
		switch {
		case f.Kept:
			fate = "kept"
		case f.Trouble != "":
			fate = "failed"
			f.Reason = f.Trouble
		case dry || f.Removed:
			fate = map[bool]string{true: "would go", false: "removed"}[dry]
			bytes += f.Bytes
			gone++
		}
		rows = append(rows, []string{fate, string(f.Kind), codalab.FormatSize(f.Bytes), f.Path, line(f.Reason)})
	}
	said := fmt.Sprintf("removed %d leftovers, %s\n", gone, codalab.FormatSize(bytes))
	if dry {
		said = fmt.Sprintf("%d leftovers, %s, would be removed; nothing was\n", gone, codalab.FormatSize(bytes))
	}
	if len(found) == 0 {
		return said
	}
	return table(rows) + "\n" + said
}

// slurmAway makes a Slurm that does not answer end the program as a server that
// does not answer does.
func slurmAway(err error) error {
	var away *sbatch.Error
	if errors.As(err, &away) {
		return &program.Error{Code: program.ExitTransient, Err: err}
	}
	return err
}
