package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
)

const aboutLettingIn = `A token lets a bridge or a worker of yours in without your password: cl-bridge
(token_file), cl-worker --token-file, or cl-worker-manager --token-file. It is for
some workers alone: with it a program runs bundles as these workers, and may do
nothing else. CodaLab's own server has no such tokens.

  token add --workers ann-*   make one, and print it: it is shown only this once
  token ls                    list yours
  token rm <id>...            end some, at once

Write a token to a file that only you may read:

  (umask 077; cl token add --workers 'ann-*' > token)

The queues of a bridge are the workers NAME-QUEUE, where NAME is the key "name" of
its configuration, and <user>-<host> without one.`

// tokenCommand is a command of our own: CodaLab's server has no program tokens.
func (c *cli) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token (add | ls | rm <id>...)", Short: "Make, list and end tokens of your bridges and workers", Long: aboutLettingIn,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.completeTokens,
	}
	var in codalab.ProgramTokenRequest
	cmd.Flags().StringArrayVar(&in.Workers, "workers", nil, "a worker's `name`, or a beginning of names with a * at its end; may be repeated")
	cmd.Flags().Int64Var(&in.Days, "days", 365, "the `number` of days after which the token ends; 0 for no end")
	cmd.Flags().BoolVar(&in.Manager, "manager", false, "the token is for a cl-worker-manager, which makes tokens for its workers")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		verb, ids := args[0], args[1:]
		switch {
		case verb == "add" && len(ids) == 0 && len(in.Workers) == 0 && !in.Manager:
			return refusef("cl token add needs --workers: names of workers, or for a bridge NAME-*")
		case verb == "add" && len(ids) == 0, verb == "ls" && len(ids) == 0, verb == "rm" && len(ids) > 0:
		case verb == "rm":
			return refusef("cl token rm needs the id of a token; cl token ls lists them")
		default:
			return refusef("there is no cl token %s%s: the words are add, ls, and rm with ids", strings.Join(args, " "), argparse.DidYouMean("", argparse.Nearest(verb, []string{"add", "ls", "rm"})))
		}
		at, err := c.workspace("")
		if err != nil {
			return err
		}
		switch verb {
		case "add":
			err = c.addToken(cmd.Context(), at, in)
		case "rm":
			err = endTokens(cmd.Context(), at, ids)
		default:
			err = c.listTokens(cmd.Context(), at)
		}
		return onlyClServer(err, at, "it has no program tokens; bridges and workers need a password there")
	}
	return cmd
}

func endTokens(ctx context.Context, at *workspace, ids []string) error {
	for _, id := range ids {
		if err := at.EndProgramToken(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) addToken(ctx context.Context, at *workspace, in codalab.ProgramTokenRequest) error {
	if in.Manager && len(in.Workers) == 0 {
		in.Workers = codalab.ManagerWorkers()
	}
	made, err := at.AddProgramToken(ctx, in)
	if err != nil || c.asJSON {
		return c.orJSON(err, made)
	}
	fmt.Fprintf(c.Stderr, "token %s for worker %s, %s\n", made.ID, strings.Join(made.Workers, ", "), tokenEnd(made.Expires))
	return c.print(made.Access)
}

func tokenEnd(seconds int64) string {
	if seconds == 0 {
		return "without an end"
	}
	return "until " + time.Unix(seconds, 0).UTC().Format(time.DateOnly)
}

func (c *cli) listTokens(ctx context.Context, at *workspace) error {
	tokens, err := at.ProgramTokens(ctx)
	if err != nil || c.asJSON {
		return c.orJSON(err, tokens)
	}
	when := func(seconds int64) string {
		if seconds == 0 {
			return "never"
		}
		return time.Unix(seconds, 0).UTC().Format(time.DateOnly)
	}
	var rows [][]string
	for _, t := range tokens {
		kind := "workers"
		if t.Manager {
			kind = "manager"
		}
		rows = append(rows, []string{t.ID, strings.Join(t.Workers, ", "), kind, when(t.Created), when(t.LastUsed), when(t.Expires)})
	}
	return printTable(c.Stdout, []column{{name: "id"}, {name: "workers"}, {name: "for"}, {name: "made"}, {name: "last_used"}, {name: "ends"}}, rows)
}

// completeTokens completes the verbs, and after rm the ids of tokens.
func (c *cli) completeTokens(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return completeWords("add", "ls", "rm")(cmd, args, begun)
	case args[0] != "rm":
		return cobra.NoFileCompletions(cmd, args, begun)
	}
	return completeEach(c, (*workspace).ProgramTokens, func(one codalab.ProgramToken) string { return one.ID })(cmd, args, begun)
}
