package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/server/store"
)

const about = `cl-server keeps bundles, worksheets and users, and hands runs to workers such as
cl-bridge. It serves CodaLab's REST API.

One data directory holds everything: a SQLite database and the bundles'
contents. You may add users while the server runs.

Exit codes: 0 done, or ended by a signal; 1 refused or failed; 2 the command
line is wrong.`

func run(ctx context.Context, p program.Process) error {
	root := program.Root(p, "cl-server", "Keep bundles and hand runs to workers", about)
	users := &cobra.Command{
		Use: "user", Short: "Add and list users", Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	users.AddCommand(userAddCommand(ctx, p), userListCommand(ctx, p))
	root.AddCommand(runCommand(ctx, p), users)
	return root.ExecuteContext(ctx) //nolint:wrapcheck // the commands add the context
}

// dataFlag adds the flag --data, which all commands need.
func dataFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "data", "", "the data `directory`; it is created if it is missing")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *dir == "" {
			return program.Usage(errors.New("--data is needed: the data directory"))
		}
		return nil
	}
	if err := cmd.MarkFlagDirname("data"); err != nil {
		panic(err) // the flag was added above
	}
}

// withStore runs do on the data directory.
func withStore(ctx context.Context, dir string, do func(*store.Store) error) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	data, err := store.Open(ctx, dir)
	if err != nil {
		return err
	}
	return errors.Join(do(data), data.Close())
}
