package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/admin/keptresults"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/spool"
)

const aboutKept = `The results of a queue with results = "keep" stay on the shared disk, below
kept/, until an operator removes them. The server has only their listing. Runs
of this bridge that depend on such a bundle use its results in place.

ls lists them, and marks the bundles that the server no longer has.
rm removes those of the named bundles, or with --deleted those of all bundles
that the server no longer has. It keeps results that a bundle of the bridge needs. A
later run that depends on a bundle without its results fails, with the reason.
Both may run while a bridge runs.

Exit codes: 1 some were not removed; 2 the command line or the configuration is
wrong; 3 the server, or the ledger's, does not answer.`

func keptCommand(p program.Process) *cobra.Command {
	return parentOf("kept", "Look at, or remove, results that stay on the shared disk", aboutKept, keptLs(p), keptRm(p))
}

func keptLs(p program.Process) *cobra.Command {
	s := &site{Process: p}
	cmd := &cobra.Command{
		Use: "ls", Short: "List kept results, and whether the server has their bundles", Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.readConfig(); err != nil {
				return err
			}
			layout := spool.Layout(s.Shared)
			found, err := keptresults.List(cmd.Context(), layout, func(spool.KeptResults) bool { return true })
			if err != nil {
				return err
			}
			err = askServer(cmd.Context(), s.Config, found)
			return errors.Join(err, s.print(found, keptresults.Text(found, layout.KeptDirs())))
		},
	}
	configFlag(cmd, &s.flags.config)
	jsonFlag(cmd, &s.json)
	return cmd
}

func askServer(ctx context.Context, c config.Config, found []keptresults.Results) error {
	cl, err := newClient(c, nil, nil)
	if err != nil {
		return program.Usage(err)
	}
	return keptresults.AskServer(ctx, cl, found)
}

func keptRm(p program.Process) *cobra.Command {
	var deleted, dryRun bool
	named := func(_ *cobra.Command, args []string) error {
		if (len(args) > 0) == deleted {
			return errors.New("want the UUIDs of bundles, or --deleted")
		}
		for _, b := range args {
			if !keptOf.MatchString(b) {
				return fmt.Errorf("%q is no UUID, nor a name that kept ls shows: want 0x and 32 hexadecimal digits", b)
			}
		}
		return nil
	}
	cmd := diskCommand(p, "rm UUID…", "Remove the kept results of bundles", "", named, func(ctx context.Context, s *site, args []string) error {
		find := findKept
		if deleted {
			find = findDeleted
		}
		found, err := find(ctx, s.Config, args)
		if err != nil {
			return err
		}
		rows := func() ([]plan.Row, error) { return s.readRows(ctx) }
		left, err := keptresults.Remove(spool.Layout(s.Shared), found, rows, dryRun)
		if err != nil {
			return err
		}
		if err := s.print(found, keptresults.RemovedText(found)); err != nil {
			return err
		}
		if left > 0 {
			return fmt.Errorf("%d of %d were not removed", left, len(found))
		}
		return nil
	})
	cmd.Flags().BoolVar(&deleted, "deleted", false, "remove those of all bundles that the server no longer has")
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "remove nothing, and list the results that would be removed")
	return cmd
}

// findDeleted returns the results of all bundles that the server no longer has.
func findDeleted(ctx context.Context, c config.Config, _ []string) ([]keptresults.Results, error) {
	found, err := keptresults.List(ctx, spool.Layout(c.Shared), func(spool.KeptResults) bool { return true })
	if err == nil {
		err = askServer(ctx, c, found)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(r keptresults.Results) bool { return !r.Deleted }), nil
}

// keptOf is the form of a bundle's name in kept rm: its UUID, with the digest of its identity or
// without.
var keptOf = regexp.MustCompile(`^0x[0-9a-f]{32}(-[0-9a-f]{16})?$`)

// findKept returns the results of these bundles. It fails for a UUID that several bundles have had.
func findKept(ctx context.Context, c config.Config, bundles []string) ([]keptresults.Results, error) {
	layout := spool.Layout(c.Shared)
	all, err := keptresults.List(ctx, layout, func(k spool.KeptResults) bool {
		return slices.Contains(bundles, k.Bundle) || slices.Contains(bundles, k.Identity)
	})
	if err != nil {
		return nil, err
	}
	var found []keptresults.Results
	for _, b := range slices.Compact(slices.Sorted(slices.Values(bundles))) {
		of := map[string][]keptresults.Results{} // by identity
		for _, r := range all {
			if r.Bundle == b || r.Identity == b {
				of[r.Identity] = append(of[r.Identity], r)
			}
		}
		identity := b // an earlier version kept results under the UUID alone
		if of[b] == nil {
			identities := slices.Sorted(maps.Keys(of))
			switch len(identities) {
			case 0:
				return nil, fmt.Errorf("no results of bundle %s are kept in %s", b, layout.KeptDirs())
			case 1:
				identity = identities[0]
			default:
				return nil, fmt.Errorf("results of several bundles of UUID %s are kept: name one of %s", b, strings.Join(identities, ", "))
			}
		}
		found = append(found, of[identity]...)
	}
	return found, nil
}

// readRows reads the rows of the ledger afresh.
func (s *site) readRows(ctx context.Context) ([]plan.Row, error) {
	r, err := s.openToJudge(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Rows(ctx)
}
