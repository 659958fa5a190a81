package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/recovery"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

const aboutRecover = `A bridge on an old copy of its ledger ends when it finds a job in Slurm that is
newer than the ledger: it must not touch jobs that it does not know. recover
lists those jobs, and says what will become of each. It changes nothing, and may
be run beside a bridge.

Look for a newer copy of the ledger first. If there is none, recover --accept
records in the ledger that there were later submissions. Then the bridge can
start again. It is refused while a bridge works on the ledger.

Exit codes: 1 no ledger, or a bridge works on it; 2 the command line or the
configuration is wrong; 3 Slurm or the ledger's server does not answer.`

func recoverCommand(p program.Process) *cobra.Command {
	var o struct {
		siteFlags
		accept, json bool
	}
	cmd := &cobra.Command{
		Use: "recover", Short: "List the jobs that an old copy of the ledger does not know", Long: aboutRecover,
		Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.read(p)
			if err != nil {
				return err
			}
			found, err := compareLedger(cmd.Context(), p, c, o.accept)
			if err != nil {
				return unavailable(err)
			}
			return printFound(p, o.json, found, found.Text(recoverLine(o.config, o.ledger)))
		},
	}
	o.flags(cmd, p)
	cmd.Flags().BoolVar(&o.accept, "accept", false, "go on with this ledger: raise its generation to the highest in Slurm")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// compareLedger compares the ledger with Slurm and, with accept, raises the ledger's
// generation. It makes no ledger where there is none: that would be the ledger of a new
// bridge, which knows no job.
func compareLedger(ctx context.Context, p program.Process, c config.Config, accept bool) (recovery.Findings, error) {
	reader, err := ledger.OpenToRead(ctx, c.Ledger)
	if errors.Is(err, ledger.ErrAbsent) {
		return recovery.Findings{}, fmt.Errorf("there is no ledger at %s", sqldb.Name(c.Ledger))
	}
	if err != nil {
		return recovery.Findings{}, err
	}
	defer reader.Close() //nolint:errcheck // it was only read
	slurm, err := findSlurm(ctx, p, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return recovery.Findings{}, &program.Error{Code: program.ExitUsage, Err: err}
	}
	policy := plan.Policy{Owner: c.User, CancelOrphans: *c.CancelStrays, OrphanGrace: orphanGrace}
	if !accept {
		found, err := recovery.Compare(ctx, p.Now(), policy, sqldb.Name(c.Ledger), reader, slurm)
		return found, slurmAway(err)
	}
	book, release, err := takeLedger(ctx, c.Ledger)
	if err != nil {
		return recovery.Findings{}, err
	}
	defer release()
	found, err := recovery.Accept(ctx, p.Now(), policy, sqldb.Name(c.Ledger), book, slurm)
	return found, slurmAway(err)
}

// outdated adds to the error of an old ledger what to do about it.
func outdated(err error, config, ledger string) error {
	if !errors.Is(err, plan.ErrOutdated) {
		return err
	}
	return fmt.Errorf(`%w; "%s" lists the jobs that it does not know and says how to go on`, err, recoverLine(config, ledger))
}

// recoverLine is the command line of recover for a configuration. The URL of a
// ledger is not repeated: it may hold a password.
func recoverLine(config, ledger string) string {
	said := "cl-bridge recover --config " + config
	switch {
	case sqldb.IsURL(ledger):
		return said + " --ledger URL"
	case ledger != "":
		return said + " --ledger " + ledger
	}
	return said
}
