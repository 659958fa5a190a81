package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/explain"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

const aboutExplain = `explain says where a bundle is, since when and why, what it waits for, and what
the bridge decided about it before. It reads the bridge's ledger, whether the bridge
runs or not. The history of a bundle that the bridge has forgotten stays for 30 days.

UUID may be shortened to its beginning, such as 0x1a2b, if no other bundle begins so.`

// explainOptions are explain's flags.
type explainOptions struct {
	config, ledger string
	json           bool
}

func explainCommand(p program.Process) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use: "explain UUID", Short: "Say where a bundle is, and why", Long: aboutExplain,
		Args: program.WrongUsage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return explainBundle(cmd.Context(), p, o, args[0])
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeBundle(cmd.Context(), p, o, typed), cobra.ShellCompDirectiveNoFileComp
		},
	}
	configFlag(cmd, p, &o.config)
	needsConfig := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if o.ledger != "" {
			return nil // explain uses nothing else of the configuration
		}
		return needsConfig(cmd, args)
	}
	ledgerFlag(cmd, &o.ledger)
	jsonFlag(cmd, &o.json)
	return cmd
}

func explainBundle(ctx context.Context, p program.Process, o explainOptions, prefix string) error {
	r, name, err := o.open(ctx, p)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it was only read
	bundle, err := explain.FindBundle(ctx, r, name, prefix)
	var ambiguous *explain.AmbiguousError
	if errors.As(err, &ambiguous) {
		return &program.Error{Code: program.ExitUsage, Err: err}
	}
	if err != nil {
		return err
	}
	e, err := explain.Bundle(ctx, r, name, bundle)
	if err != nil {
		return err
	}
	return printFound(p, o.json, e, e.Text(p.Now()))
}

// open opens the ledger, on which a bridge may be at work, and returns its name too.
func (o explainOptions) open(ctx context.Context, p program.Process) (*ledger.Reader, string, error) {
	var c config.Config
	if o.ledger == "" {
		var err error
		if c, err = config.Read(o.config); err != nil {
			return nil, "", &program.Error{Code: program.ExitUsage, Err: err}
		}
	}
	where, err := ledgerPlace(p, c, o.ledger)
	if err != nil {
		return nil, "", err
	}
	r, err := ledger.OpenToRead(ctx, where)
	if errors.Is(err, ledger.ErrAbsent) {
		err = fmt.Errorf("no bridge has made a ledger at %s yet", sqldb.Name(where))
	}
	return r, sqldb.Name(where), err
}

// completeBundle returns the bundles whose UUIDs begin with what has been typed.
func completeBundle(ctx context.Context, p program.Process, o explainOptions, typed string) []string {
	if o.ledger == "" {
		var err error
		if o.config, err = findConfig(p, o.config); err != nil {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, _, err := o.open(ctx, p)
	if err != nil {
		return nil
	}
	defer r.Close() //nolint:errcheck // it was only read
	bundles, err := explain.Complete(ctx, r, typed)
	if err != nil {
		return nil
	}
	return bundles
}
