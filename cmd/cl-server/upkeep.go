package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// checked is the result of fsck.
type checked struct {
	Findings []store.Finding `json:"findings"`
	// Served means that a server runs, so that fsck did not look for contents that no bundle
	// names.
	Served bool `json:"served"`
}

func fsckCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	var repair, asJSON bool
	cmd := &cobra.Command{
		Use: "fsck --data DIRECTORY", Short: "Check the data, and mend it", Args: program.WrongUsage(cobra.NoArgs),
		Long: `Check the data, and print a line for each finding. The server may keep running.

Kinds of findings, and what --repair does:
  contents   a bundle's contents are missing or cannot be read: nothing
  size       a bundle's data_size is not the size of its contents: sets it
  disk-used  a user's disk use is not the sum of the bundles: sets it
  unnamed    no bundle names these contents: removes them. fsck looks for them only
             while no server runs: then a crash left them from an upload
  row        a row refers to a missing one: deletes it, unless it is a bundle,
             worksheet or group whose owner is missing
  database   SQLite finds its file damaged: nothing

Exit codes: 0 nothing was found, or all of it was mended; 1 something is wrong, or
the check failed; 2 the command line is wrong; 3 the database does not answer.`,
		RunE: func(_ *cobra.Command, _ []string) error {
			return at.withExisting(ctx, func(data *store.Store) error {
				found, err := check(ctx, data, repair)
				if err != nil {
					return err
				}
				return found.print(p, asJSON)
			})
		},
	}
	at.flags(cmd)
	cmd.Flags().BoolVar(&repair, "repair", false, "mend the faults that can be mended without losing data")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func check(ctx context.Context, data *store.Store, repair bool) (found checked, err error) {
	found.Findings = []store.Finding{}
	found.Served, err = data.Check(ctx, repair, func(f store.Finding) { found.Findings = append(found.Findings, f) })
	return found, err
}

// print prints the findings. It fails if some are not mended.
func (c checked) print(p program.Process, asJSON bool) error {
	var text strings.Builder
	wrong := false
	for _, f := range c.Findings {
		mended := ""
		if f.Mended {
			mended = " (mended)"
		}
		wrong = wrong || !f.Mended
		fmt.Fprintf(&text, "%s: %s: %s%s\n", f.Kind, f.Object, f.Problem, mended)
	}
	if err := p.Print(asJSON, c, text.String()); err != nil {
		return err
	}
	if wrong {
		return &program.Error{Code: program.ExitFailure}
	}
	return nil
}

func backupCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	cmd := &cobra.Command{
		Use: "backup --data DIRECTORY DEST", Short: "Write a backup", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: `Write a backup to the directory DEST, which must not exist. The server may keep
running. The backup has the database of one moment, as a SQLite file even if the
database is in PostgreSQL, and the contents of its bundles. It does not have
unfinished uploads, the files of running bundles, nor the key of users' secrets:
keep a copy of that elsewhere.

On the file system of the data directory, files of contents are hard links to
those of the server, which never changes them: that needs hardly any room, and
is no protection against a broken disk. Elsewhere they are copies.

The command writes to DEST.tmp, and renames that at the end. A second try removes
the files of an interrupted one.

Exit codes: 0 done; 1 refused or failed, or the data directory had lost contents,
which the backup then lacks; 2 the command line is wrong; 3 the database does not
answer.`,
		RunE: func(_ *cobra.Command, args []string) error {
			dest, err := filepath.Abs(args[0])
			if err != nil {
				return fmt.Errorf("back up to %s: %w", args[0], err)
			}
			return at.withExisting(ctx, func(data *store.Store) error { return backUp(ctx, p, data, dest) })
		},
	}
	at.flags(cmd)
	return cmd
}

func backUp(ctx context.Context, p program.Process, data *store.Store, dest string) error {
	made, err := data.Backup(ctx, dest, p.Now())
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s: %d bundles, %d with contents\n", dest, made.Bundles, made.Contents-len(made.Missing))
	if err := p.Print(false, nil, text); err != nil {
		return err
	}
	switch n, err := data.OtherSecrets(ctx, ""); {
	case err != nil:
		return err
	case n > 0:
		fmt.Fprintf(p.Stderr, "cl-server: the backup has %d secrets of users, and not the key (cl-server run --secrets-key): without a copy of that their owners have to set them again\n", n)
	}
	if len(made.Missing) > 0 {
		return fmt.Errorf("%s lacks contents that the data directory has lost: %s", dest, strings.Join(made.Missing, ", "))
	}
	return nil
}

func restoreCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	cmd := &cobra.Command{
		Use: "restore --data DIRECTORY SRC", Short: "Make a data directory from a backup", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: `Make a data directory from the backup SRC, and check it as fsck does. The data
directory must be missing or empty. The database becomes SQLite or, with
--database, PostgreSQL, whose database must be empty; the kind need not be that
of the server that was backed up. On one file system, files of contents are
hard links to those of the backup.

No server starts on an unfinished restore. After a failure, remove the data
directory and empty the database before the next try.

Exit codes: 0 done; 1 refused or failed, or something is wrong with the restored
data; 2 the command line is wrong; 3 the database does not answer.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := at.checkOwn(p); err != nil {
				return err
			}
			if err := store.Restore(ctx, args[0], at.dir, at.database); err != nil {
				return coded(err)
			}
			return at.withStore(ctx, func(data *store.Store) error {
				found, err := check(ctx, data, false)
				if err != nil {
					return err
				}
				return found.print(p, false)
			})
		},
	}
	at.flags(cmd)
	return cmd
}
