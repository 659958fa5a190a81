package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/admin/recovery"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

const aboutRecover = `A bridge on an old copy of its ledger ends when it finds a job in Slurm that is
newer than the ledger: it must not touch jobs that it does not know. recover
lists those jobs, and the consequence for each. It changes nothing, and may run
while a bridge runs.

Look for a newer copy of the ledger first. If there is none, recover --accept
records in the ledger that there were later submissions. Then the bridge can
start again. It is refused while a bridge works on the ledger.

Exit codes: 1 no ledger, or a bridge works on it; 2 the command line or the
configuration is wrong; 3 Slurm or the ledger's server does not answer.`

func recoverCommand(p program.Process) *cobra.Command {
	accept := false
	cmd := diskCommand(p, "recover", "List the jobs that an old copy of the ledger does not know", aboutRecover, cobra.NoArgs,
		func(ctx context.Context, s *site, _ []string) error {
			found, err := compareLedger(ctx, s, accept)
			if err != nil {
				return err
			}
			return s.print(found, found.Text(recoverLine(s.flags)))
		})
	cmd.Flags().BoolVar(&accept, "accept", false, "go on with this ledger: raise its generation to the highest in Slurm")
	return cmd
}

// compareLedger compares the ledger with Slurm and, with accept, raises the ledger's
// generation. It fails if there is no ledger: a new one would know no job.
func compareLedger(ctx context.Context, s *site, accept bool) (recovery.Findings, error) {
	reader, err := ledger.OpenToRead(ctx, s.Ledger)
	if err != nil {
		return recovery.Findings{}, s.absent(ctx, err, "there is no ledger at "+sqldb.Name(s.Ledger))
	}
	defer reader.Close()
	slurm, err := findSlurm(ctx, s.Process, s.Config, slog.New(slog.DiscardHandler))
	if err != nil {
		return recovery.Findings{}, program.Usage(err)
	}
	policy := plan.Policy{Owner: s.User, CancelOrphans: *s.CancelStrays, OrphanGrace: assembly.OrphanGrace}
	if !accept {
		return recovery.Compare(ctx, s.Now(), policy, sqldb.Name(s.Ledger), reader, slurm)
	}
	book, release, err := assembly.TakeLedger(ctx, s.Ledger)
	if err != nil {
		return recovery.Findings{}, err
	}
	defer release()
	return recovery.Accept(ctx, s.Now(), policy, sqldb.Name(s.Ledger), book, slurm)
}

// outdated adds advice to the error of an old ledger.
func outdated(err error, f siteFlags) error {
	if !errors.Is(err, plan.ErrOutdated) {
		return err
	}
	return fmt.Errorf(`%w; "%s" lists the jobs that it does not know and the next steps`, err, recoverLine(f))
}

// recoverLine is the command line of recover for a configuration. The URL of a
// ledger is not repeated: it may hold a password.
func recoverLine(f siteFlags) string {
	said := "cl-bridge recover --config " + f.config
	switch {
	case sqldb.IsURL(f.ledger):
		return said + " --ledger URL"
	case f.ledger != "":
		return said + " --ledger " + f.ledger
	}
	return said
}
