package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const aboutSweep = `sweep removes files from the shared directory that no bundle and no job needs:
working directories, records, versions of cl-worker, rings of the doorbell and
temporary files that a crash, an old ledger or an earlier version has left behind. A
running bridge does the same every hour.

sweep asks Slurm, the ledger and the disk's own clock. It removes nothing if one of
them does not answer, or if a job is newer than the ledger. It keeps files that changed
within sweep_grace or that another bridge made, and lists files without a known owner.
It may run while a bridge runs. For the cache there is cl-bridge cache trim.

Exit codes: 1 no ledger, an old one, or something could not be removed; 2 the
command line or the configuration is wrong; 3 Slurm or the ledger's server does
not answer.`

func sweepCommand(p program.Process) *cobra.Command {
	dryRun := false
	cmd := diskCommand(p, "sweep", "Remove unneeded files from the shared directory", aboutSweep, cobra.NoArgs,
		func(ctx context.Context, s *site, _ []string) error {
			found, err := sweepOnce(ctx, s, dryRun)
			if err != nil && len(found) == 0 {
				return outdated(err, s.flags)
			}
			return errors.Join(reportSweep(s, dryRun, found), err)
		})
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "remove nothing, and list the files that would be removed")
	return cmd
}

// sweepOnce sweeps once. It may run while a bridge runs.
func sweepOnce(ctx context.Context, s *site, dryRun bool) ([]sharedfiles.Finding, error) {
	reader, err := s.openToJudge(ctx)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	slurm, err := findSlurm(ctx, s.Process, s.Config, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, program.Usage(err)
	}
	once := assembly.Sweeper(s.Config, reader, slurm, nil, s.Now)
	if dryRun {
		return once.Find(ctx)
	}
	return once.Sweep(ctx)
}

// reportSweep prints the findings, and fails if something could not be removed.
func reportSweep(s *site, dryRun bool, found []sharedfiles.Finding) error {
	report := struct {
		DryRun   bool                  `json:"dry_run"`
		Findings []sharedfiles.Finding `json:"findings"`
	}{dryRun, append([]sharedfiles.Finding{}, found...)}
	if err := s.print(report, sharedfiles.SweepText(found, dryRun)); err != nil {
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
