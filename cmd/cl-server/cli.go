package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
	"github.com/cl-slurm/cl-slurm/server/store"
)

const about = `cl-server keeps bundles, worksheets and users, and hands runs to workers such as
cl-bridge. It serves CodaLab's REST API.

One data directory holds everything: a SQLite database and the bundles'
contents. With --database, the database is in PostgreSQL, and belongs to that
one directory. Every command then needs both flags. Keep a password in ~/.pgpass
or PGPASSWORD: everybody on the machine can read a command line. You may add
users while the server runs.

Exit codes: 0 done, or ended by a signal; 1 refused or failed; 2 the command
line is wrong; 3 the database does not answer.`

func run(ctx context.Context, p program.Process) error {
	root := program.Root(p, "cl-server", "Keep bundles and hand runs to workers", about)
	users := &cobra.Command{
		Use: "user", Short: "Add, change and list users", Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	users.AddCommand(
		userAddCommand(ctx, p), userListCommand(ctx, p), userPasswordCommand(ctx, p), userResetCommand(ctx, p), userSessionsCommand(ctx, p),
		userQuotaCommand(ctx, p), userEmailCommand(ctx, p), userScopeCommand(ctx, p), userLinkCommand(ctx, p), userUnlinkCommand(ctx), userRemoveCommand(ctx, p),
	)
	root.AddCommand(runCommand(ctx, p), users, tokenCommand(ctx, p), fsckCommand(ctx, p), backupCommand(ctx, p), restoreCommand(ctx, p), importCommand(ctx, p), secretsCommand(ctx, p), mailCommand(ctx, p))
	return root.ExecuteContext(ctx) //nolint:wrapcheck // the commands add the context
}

// dataLocation holds the data directory and the database of a server.
type dataLocation struct {
	dir string
	// database is the URL of a database in PostgreSQL; empty for the SQLite file in dir.
	database string
}

// flags adds the flags --data and --database, which all commands have.
func (at *dataLocation) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&at.dir, "data", "", "the data `directory`; it is created if it is missing")
	cmd.Flags().StringVar(&at.database, "database", "", "the `URL` of a PostgreSQL database, postgres://USER@HOST/DATABASE (default: the SQLite file codalab.db in the data directory)")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if at.dir == "" {
			return program.Usage(errors.New("--data is needed: the data directory"))
		}
		if at.database != "" && !sqldb.IsURL(at.database) {
			return program.Usage(errors.New("--database: want postgres://USER@HOST/DATABASE"))
		}
		if err := sqldb.Check(at.database); err != nil {
			return program.Usage(fmt.Errorf("--database: %w", err))
		}
		var err error
		if at.dir, err = filepath.Abs(at.dir); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		return nil
	}
	if err := cmd.MarkFlagDirname("data"); err != nil {
		panic(err) // the flag was added above
	}
}

// withStore runs do on the data.
func (at *dataLocation) withStore(ctx context.Context, do func(*store.Store) error) error {
	data, err := store.OpenDatabase(ctx, at.dir, at.database)
	if err != nil {
		return coded(err)
	}
	return coded(errors.Join(do(data), data.Close()))
}

// withLocked is withStore for a server, which has the data alone.
func (at *dataLocation) withLocked(ctx context.Context, do func(*store.Store) error) error {
	data, unlock, err := store.OpenLocked(ctx, at.dir, at.database)
	if err != nil {
		return coded(err)
	}
	return coded(errors.Join(do(data), data.Close(), unlock()))
}

// checkOwn refuses a data directory in which others can write, or that they can replace. p is the process that is going to
// serve it.
func (at *dataLocation) checkOwn(p program.Process) error {
	for _, path := range []string{at.dir, filepath.Join(at.dir, "bundles"), filepath.Join(at.dir, "codalab.db")} {
		if err := checkOwnFile(p, path); err != nil {
			return program.Usage(fmt.Errorf("--data: %w", err))
		}
	}
	return nil
}

// checkFlagFiles refuses each file that a flag names and others can write, or replace. Empty paths are not given.
func checkFlagFiles(p program.Process, files map[string]string) error {
	for _, flag := range slices.Sorted(maps.Keys(files)) {
		if files[flag] == "" {
			continue
		}
		if err := checkOwnFile(p, files[flag]); err != nil {
			return program.Usage(fmt.Errorf("%s: %w", flag, err))
		}
	}
	return nil
}

// checkOwnFile refuses a path to which others can write, or that they can replace, unless nobody else is on the machine.
func checkOwnFile(p program.Process, path string) error {
	if p.Alone() {
		return nil
	}
	return strictmodes.Current().Check(path)
}

// withExisting is withStore for a data directory that must exist.
func (at *dataLocation) withExisting(ctx context.Context, do func(*store.Store) error) error {
	if _, err := os.Stat(filepath.Join(at.dir, "bundles")); err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	return at.withStore(ctx, do)
}

// coded gives ExitTransient to the error of a database that does not answer.
func coded(err error) error {
	var own *program.Error
	if errors.Is(err, sqldb.ErrUnavailable) && !errors.As(err, &own) {
		return &program.Error{Code: program.ExitTransient, Err: err}
	}
	return err
}
