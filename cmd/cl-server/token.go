package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// tokenCommand has the commands for program tokens.
func tokenCommand(ctx context.Context, p program.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Make, list and end tokens of bridges and workers", Args: program.WrongUsage(cobra.NoArgs),
		Long: `Make, list and end program tokens. A bridge (token_file), cl-worker (--token-file)
or cl-worker-manager (--token-file) signs in with one in place of a password. It
is for some workers of one account alone: its program checks in as these workers,
reads the inputs of their runs and writes their results, and may do nothing else.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(tokenAddCommand(ctx, p), tokenListCommand(ctx, p), tokenRemoveCommand(ctx))
	return cmd
}

func tokenAddCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	var in codalab.ProgramTokenRequest
	cmd := &cobra.Command{
		Use: "add --data DIRECTORY --workers NAME-* ACCOUNT", Short: "Make a token", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: `Make a program token for an account, and print it. It is shown only this once:
the server keeps its hash. Write it to a file that only the program's user may
read:

  (umask 077; cl-server token add --data DIRECTORY --workers 'lab-*' lab-bridge > token)

--workers names the workers for which the token is. The queues of a bridge are the
workers NAME-QUEUE, where NAME is the key "name" of its configuration, and
"<user>-<host>" without one: give NAME-*. The flag may be repeated.

--manager makes the token of a cl-worker-manager. It may also find staged runs of
its account, list its workers, and make tokens for them. Without --workers it is for
host-* and cl-worker-manager-*, which are the names of a manager's workers and its own.

The token ends after --days, or when "token rm" ends it. A change of the account's
password ends only tokens that a login of the account has made (cl token).`,
		RunE: func(_ *cobra.Command, args []string) error {
			if in.Manager && len(in.Workers) == 0 {
				in.Workers = codalab.ManagerWorkers()
			}
			token, t, err := server.NewProgramToken("", in, p.Now())
			if err != nil {
				return program.Usage(err)
			}
			return at.withUser(ctx, args[0], func(data *store.Store, u store.User) error {
				t.UserID = u.ID
				if err := data.AddProgramToken(ctx, t, server.MaxProgramTokens); err != nil {
					if errors.Is(err, store.ErrTooMany) {
						return fmt.Errorf("%s has %d tokens already: end those that nobody needs (token ls, token rm)", u.Name, server.MaxProgramTokens)
					}
					return err
				}
				fmt.Fprintf(p.Stderr, "token %s of %s, for worker %s, %s\n", t.ID, u.Name, strings.Join(in.Workers, ", "), tokenEnd(t))
				return p.Print(false, nil, token+"\n")
			})
		},
	}
	at.flags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&in.Workers, "workers", nil, "a worker's `name`, or a beginning of names with a * at its end, such as lab-*; may be repeated")
	f.Int64Var(&in.Days, "days", 365, "the `number` of days after which the token ends; 0 for no end")
	f.BoolVar(&in.Manager, "manager", false, "the token is for a worker manager, which makes tokens for its workers")
	return cmd
}

// tokenEnd returns the end of a token in words.
func tokenEnd(t store.ProgramToken) string {
	if t.Expires.IsZero() {
		return "without an end"
	}
	return "until " + t.Expires.UTC().Format(time.DateOnly)
}

func tokenListCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls --data DIRECTORY [ACCOUNT]", Short: "List the tokens", Args: program.WrongUsage(cobra.MaximumNArgs(1)),
		Long: `List the program tokens of an account, or of all accounts. The time of the last
use may be ten minutes too early. A token that has ended stays in the list until
"token rm" removes it.`,
		RunE: func(_ *cobra.Command, args []string) error {
			return at.withStore(ctx, func(data *store.Store) error {
				found, err := listTokens(ctx, data, args)
				if err != nil {
					return err
				}
				return p.Print(asJSON, found, tokenTable(found, p.Now()))
			})
		},
	}
	at.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// listTokens returns the tokens of the account that args name, or of all accounts.
func listTokens(ctx context.Context, data *store.Store, args []string) ([]codalab.ProgramToken, error) {
	userID := ""
	if len(args) > 0 {
		u, err := findUser(ctx, data, args[0])
		if err != nil {
			return nil, err
		}
		userID = u.ID
	}
	tokens, err := data.ProgramTokens(ctx, userID)
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, t := range tokens {
		ids = append(ids, t.UserID)
	}
	users, err := data.UsersByID(ctx, ids)
	found := []codalab.ProgramToken{}
	for _, t := range tokens {
		found = append(found, server.ShowProgramToken(t, users[t.UserID].Name))
	}
	return found, err
}

func tokenTable(tokens []codalab.ProgramToken, now time.Time) string {
	rows := [][]string{{"ID", "ACCOUNT", "WORKERS", "FOR", "MADE", "LAST USED", "ENDS"}}
	day := func(seconds int64) string {
		if seconds == 0 {
			return "never"
		}
		return time.Unix(seconds, 0).UTC().Format(time.DateOnly)
	}
	for _, t := range tokens {
		kind, used, ends := "workers", "never", day(t.Expires)
		if t.Manager {
			kind = "manager"
		}
		if t.LastUsed > 0 {
			used = time.Unix(t.LastUsed, 0).UTC().Format("2006-01-02 15:04")
		}
		if t.Expires > 0 && t.Expires <= now.Unix() {
			ends = "ended " + ends
		}
		rows = append(rows, []string{t.ID, t.User, strings.Join(t.Workers, ", "), kind, day(t.Created), used, ends})
	}
	return termtext.Table(rows)
}

func tokenRemoveCommand(ctx context.Context) *cobra.Command {
	var at dataLocation
	cmd := &cobra.Command{
		Use: "rm --data DIRECTORY ID...", Short: "End tokens", Args: program.WrongUsage(cobra.MinimumNArgs(1)),
		Long: `End tokens by their ids (token ls). The server refuses them from now on, also
while it runs, and the worker tokens that they have made.`,
		RunE: func(_ *cobra.Command, args []string) error {
			return at.withStore(ctx, func(data *store.Store) error {
				var failed error
				for _, id := range args {
					err := data.DeleteProgramToken(ctx, "", id)
					if errors.Is(err, store.ErrNotFound) {
						err = fmt.Errorf("there is no token %s", id)
					}
					failed = errors.Join(failed, err)
				}
				return failed
			})
		},
	}
	at.flags(cmd)
	return cmd
}
