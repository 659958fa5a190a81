package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
)

const secretHelp = `Keep passwords and keys that runs need, out of commands and results.

  cl secret set WANDB_API_KEY          asks for the value, and does not show it
  cl secret set WANDB_API_KEY < file   takes it from standard input
  cl secret ls                         names and times; nobody can read a value
  cl secret rm WANDB_API_KEY

  cl run --secret WANDB_API_KEY 'python train.py'

The command of such a run has the variable WANDB_API_KEY. Where the value appears
as it is in the run's output, it is replaced by ***. Files that the command writes
are not changed. The server keeps secrets encrypted, and gives them only to workers
of yours and of the site that have your run.`

// secretCommand has no counterpart in CodaLab's own cl.
func (c *cli) secretCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "secret (ls | set <name> | rm <name>...)", Short: "Keep passwords and keys for your runs", Long: secretHelp,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeInTurn(completeWords("ls", "rm", "set"), c.completeSecrets),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, verb, names := cmd.Context(), args[0], args[1:]
		switch {
		case verb == "ls" && len(names) == 0:
			return c.listSecrets(ctx)
		case verb == "set" && len(names) == 1:
			return c.setSecret(ctx, names[0])
		case verb == "set" && len(names) > 1:
			return refusef("cl secret set takes the value from standard input or asks for it: everybody on this machine can read a command line. " +
				"If what you typed is the secret, it is also in your shell's history: replace it where it came from")
		case verb == "rm" && len(names) > 0:
			return c.removeSecrets(ctx, names)
		case verb == "set" || verb == "rm":
			return refusef("cl secret %s needs the name of a secret; cl secret ls lists yours", verb)
		case verb == "ls":
			return refusef("cl secret ls lists all your secrets, and takes no names")
		}
		return refusef("cl secret %s is not supported%s. Only the following subcommands are supported: 'cl secret ls', 'cl secret set', 'cl secret rm'.",
			verb, argparse.DidYouMean("", argparse.Nearest(verb, []string{"ls", "set", "rm"})))
	}
	return cmd
}

func (c *cli) setSecret(ctx context.Context, name string) error {
	if err := codalab.CheckSecretName(name); err != nil {
		return refusef("%s", codalab.Sentence(err.Error()))
	}
	at, err := c.workspace("")
	if err != nil {
		return err
	}
	value, err := c.readSecret(name)
	if err != nil {
		return err
	}
	if err := codalab.CheckSecretValue(value); err != nil {
		return refusef("%s", codalab.Sentence(err.Error()))
	}
	if err := at.SetSecret(ctx, name, value); err != nil {
		return onlyClServer(err, at, withoutVault)
	}
	return c.printResult(secretName{name}, "%s", name)
}

// secretName is the result of a change of a secret.
type secretName struct {
	Name string `json:"name"`
}

// readSecret reads the value of a secret from standard input, or asks for it on a terminal. The line break at the end of a
// file is no part of it.
func (c *cli) readSecret(name string) (string, error) {
	if fd, ok := terminal(c.Stdin); ok {
		return c.askSecret(fd, name)
	}
	const most = codalab.MaxSecretBytes + len("\r\n")
	data, err := io.ReadAll(io.LimitReader(c.Stdin, int64(most)+1))
	if err != nil {
		return "", fmt.Errorf("read the value of %s: %w", name, err)
	}
	if len(data) > most {
		return "", refusef("The value of a secret may have %d bytes, and standard input has more.", codalab.MaxSecretBytes)
	}
	value := strings.TrimSuffix(string(data), "\n")
	return strings.TrimSuffix(value, "\r"), nil
}

// askSecret asks for the value of a secret on a terminal, without showing it. An interrupt restores the terminal.
func (c *cli) askSecret(fd int, name string) (string, error) {
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("ask for the value of %s: %w", name, err)
	}
	restore := func() { _ = term.Restore(fd, before) } // the terminal may have gone
	c.prompt.Store(&restore)
	defer c.prompt.Store(nil)
	fmt.Fprintf(c.Stderr, "Value of %s (it is not shown): ", name)
	value, err := term.ReadPassword(fd)
	_, _ = fmt.Fprintln(c.Stderr) // a terminal
	if err != nil {
		return "", fmt.Errorf("ask for the value of %s: %w", name, err)
	}
	return string(value), nil
}

func (c *cli) removeSecrets(ctx context.Context, names []string) error {
	at, err := c.workspace("")
	if err != nil {
		return err
	}
	if err := at.RemoveSecrets(ctx, names...); err != nil {
		return onlyClServer(err, at, withoutVault)
	}
	var removed []secretName
	for _, name := range names {
		removed = append(removed, secretName{name})
	}
	return c.printResult(removed, "%s", strings.Join(names, "\n"))
}

func (c *cli) listSecrets(ctx context.Context) error {
	at, err := c.workspace("")
	if err != nil {
		return err
	}
	have, err := at.Secrets(ctx)
	if err != nil {
		return onlyClServer(err, at, withoutVault)
	}
	if c.asJSON {
		return c.printJSON(append([]codalab.Secret{}, have...))
	}
	var rows [][]string
	for _, s := range have {
		used := "never"
		switch {
		case s.Lost:
			used = "lost: set it again"
		case s.LastUsed != 0:
			used = secretTime(s.LastUsed)
		}
		rows = append(rows, []string{s.Name, secretTime(s.Set), used})
	}
	return printTable(c.Stdout, []column{{name: "name"}, {name: "set"}, {name: "last_used"}}, rows)
}

func secretTime(seconds int64) string { return clockTime(time.Unix(seconds, 0)) }

// withoutVault is the sentence about a server without secrets.
const withoutVault = "it keeps no secrets"

// explainSecrets replaces the refusal of a new run that names secrets if the server has none: CodaLab's own does not know
// the key.
func explainSecrets(ctx context.Context, at *workspace, metadata codalab.Metadata, refusal error) error {
	if _, named := metadata[codalab.SecretsKey]; !named || !codalab.IsStatus(refusal, http.StatusBadRequest) {
		return refusal
	}
	_, err := at.Secrets(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return onlyClServer(err, at, withoutVault)
	}
	return refusal
}

// secretFlag adds the flag --secret. It returns a function that puts the names into metadata, if there are any: CodaLab's
// own server does not know their key.
func (c *cli) secretFlag(cmd *cobra.Command, help string) func(codalab.Metadata) {
	var names []string
	cmd.Flags().StringArrayVar(&names, "secret", nil, help)
	_ = cmd.RegisterFlagCompletionFunc("secret", func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return c.completeSecrets(cmd, nil, begun)
	}) // the flag is there
	return func(m codalab.Metadata) {
		if len(names) > 0 {
			m[codalab.SecretsKey] = names
		}
	}
}

// completeSecrets offers the names of the user's secrets.
func (c *cli) completeSecrets(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completeEach(c, (*workspace).Secrets, func(one codalab.Secret) string { return one.Name })(cmd, args, begun)
}
