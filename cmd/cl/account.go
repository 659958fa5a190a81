package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// onlyClServer replaces the error of a call that only cl-server has by a sentence. lack is a sentence about another server.
func onlyClServer(err error, at *workspace, lack string) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return refusef("%s is CodaLab's own server, or an old cl-server: %s", at.Address(), lack)
	}
	return err
}

// passwordsElsewhere is a sentence for servers at which cl passwd cannot change a password.
const passwordsElsewhere = "passwords are changed on its web page"

// passwdCommand has no equal in CodaLab's cl.
func (c *cli) passwdCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "passwd", Short: "Change your password",
		Long: `Change your password at the current server. On a terminal cl asks for the old and
the new password; else it reads two lines from standard input, the old one first.

This ends your other sessions, also those of bridges and workers with your
password, all of your worker tokens, and the program tokens that you have made (cl
token): those of the operator stay. The session of this cl goes on.

With --reset the operator's one-time code takes the place of the old password
(cl-server user reset): then all of your sessions end.`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	reset := cmd.Flags().Bool("reset", false, "give the operator's one-time code in place of the old password")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		at, err := c.workspace("")
		if err != nil {
			return err
		}
		if *reset {
			return c.resetPassword(cmd.Context(), at)
		}
		user, err := at.User(cmd.Context()) // signs in first
		if err != nil {
			return err
		}
		old, next, err := c.askChange("Old password: ", c.entered)
		if err != nil {
			return err
		}
		ended, err := at.ChangePassword(cmd.Context(), old, next)
		if err != nil {
			return onlyClServer(err, at, passwordsElsewhere)
		}
		return c.printResult(map[string]any{"user": user.UserName, "ended_sessions": ended},
			"The password of %s is changed. %s ended, and so have all worker tokens and the program tokens that you have made.", user.UserName, sessionsHave(ended))
	}
	return cmd
}

// sessionsHave begins a sentence about a number of other sessions.
func sessionsHave(n int) string {
	switch n {
	case 0:
		return "No other session has"
	case 1:
		return "1 other session has"
	}
	return fmt.Sprintf("%d other sessions have", n)
}

func (c *cli) resetPassword(ctx context.Context, at *workspace) error {
	code, next, err := c.askChange("One-time code: ", "")
	if err == nil {
		err = at.ResetPassword(ctx, code, next)
	}
	if err != nil {
		return onlyClServer(err, at, passwordsElsewhere)
	}
	return c.printResult(map[string]any{"address": at.Address()}, "The password is changed. All sessions have ended.")
}

// askChange asks for a secret, unless it is known, and twice for a new password; or reads both from standard input.
func (c *cli) askChange(prompt, known string) (secret, next string, err error) {
	_, isTerminal := terminal(c.Stdin)
	in, isFile := c.Stdin.(account.Terminal)
	if !isTerminal || !isFile {
		return readChange(c.Stdin)
	}
	defer c.guardTerminal()()
	if secret = known; secret == "" {
		if secret, err = account.AskSecret(c.Stderr, in, prompt); err != nil {
			return "", "", err
		}
	}
	if next, err = account.AskSecret(c.Stderr, in, "New password: "); err != nil {
		return "", "", err
	}
	again, err := account.AskSecret(c.Stderr, in, "New password again: ")
	if err == nil && again != next {
		err = refusef("the two new passwords differ")
	}
	return secret, next, err
}

// readChange reads two lines: a secret and a new password.
func readChange(r io.Reader) (secret, next string, err error) {
	const longest = 8192
	lines := bufio.NewScanner(io.LimitReader(r, longest))
	var read []string
	for len(read) < 2 && lines.Scan() {
		read = append(read, strings.TrimSuffix(lines.Text(), "\r"))
	}
	if err := lines.Err(); err != nil {
		return "", "", fmt.Errorf("read passwords: %w", err)
	}
	if len(read) < 2 || read[0] == "" || read[1] == "" {
		return "", "", refusef("standard input has to have two lines: the old password, or the one-time code, and the new password")
	}
	return read[0], read[1], nil
}

// sessionsCommand has no equal in CodaLab's cl.
func (c *cli) sessionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sessions [revoke <session>...]", Short: "List your sessions, or end some",
		Long: `List your sessions at the current server: each is one sign-in of a program, on
some machine. The time of the last use is some minutes late.

  sessions                    list them; * is the session of this cl
  sessions revoke <session>…  end these
  sessions revoke --all       end all but the session of this cl, which cl logout ends

The program of a session that has ended has to sign in again.`,
		ValidArgsFunction: completeInTurn(completeWords("revoke"), c.completeSessions),
	}
	all := cmd.Flags().Bool("all", false, "with revoke: end all but the session of this cl")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && *all:
			return refusef("--all belongs to cl sessions revoke")
		case len(args) > 0 && args[0] != "revoke":
			return refusef("cl sessions does not know %q%s", args[0], argparse.DidYouMean("", argparse.Nearest(args[0], []string{"revoke"})))
		case len(args) == 1 && !*all:
			return refusef("cl sessions revoke needs the id of a session, or --all; cl sessions lists them")
		case len(args) > 1 && *all:
			return refusef("cl sessions revoke takes either the ids of sessions or --all")
		}
		at, err := c.workspace("")
		if err != nil {
			return err
		}
		switch {
		case len(args) == 0:
			err = c.listSessions(cmd.Context(), at)
		case *all:
			err = c.revokeOthers(cmd.Context(), at)
		default:
			err = c.revoke(cmd.Context(), at, args[1:])
		}
		return onlyClServer(err, at, "it lists no sessions")
	}
	return cmd
}

// sessionView is a session in JSON.
type sessionView struct {
	ID string `json:"id"`
	codalab.Session
}

func (c *cli) listSessions(ctx context.Context, at *workspace) error {
	sessions, err := at.Sessions(ctx)
	if err != nil {
		return err
	}
	views := []sessionView{}
	var rows [][]string
	for _, s := range sessions {
		views = append(views, sessionView{s.ID, s})
		mark := ""
		if s.Current {
			mark = "*"
		}
		rows = append(rows, []string{mark, s.ID, s.Program, s.Address, c.ago(s.Made), c.ago(s.Used)})
	}
	if c.asJSON {
		return c.printJSON(views)
	}
	return printTable(c.Stdout, []column{{name: ""}, {name: "session"}, {name: "program"}, {name: "address"}, {name: "signed_in"}, {name: "last_used"}}, rows)
}

// ago is the time since a moment. A clock that is behind the server's shows none.
func (c *cli) ago(at time.Time) string {
	return codalab.FormatDuration(max(c.Now().Sub(at), 0).Truncate(time.Second)) + " ago"
}

func (c *cli) revoke(ctx context.Context, at *workspace, ids []string) error {
	for _, id := range ids {
		if err := at.EndSession(ctx, id); err != nil {
			return err
		}
		if err := c.printUnlessJSON("%s", id); err != nil {
			return err
		}
	}
	if c.asJSON {
		return c.printJSON(map[string]any{"ended": ids})
	}
	return nil
}

func (c *cli) revokeOthers(ctx context.Context, at *workspace) error {
	n, err := at.EndOtherSessions(ctx)
	if err != nil {
		return err
	}
	return c.printResult(map[string]any{"ended_sessions": n}, "%s ended.", sessionsHave(n))
}

// completeSessions offers the ids of sessions.
func (c *cli) completeSessions(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completeEach(c, (*workspace).Sessions, func(one codalab.Session) string { return one.ID })(cmd, args, begun)
}

// logoutCommand is bundle_cli.py: do_logout_command.
func (c *cli) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "logout [<address>|<alias>]", Short: "Sign out of a server",
		Long: `End the session at a server, by default the current one, and forget its tokens and
the user name. If the server does not answer, cl forgets them all the same, and says
so. A mark stays by which the server knows this machine at your next sign-in.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := c.namedServer(args)
			if err != nil {
				return err
			}
			return c.forget(cmd.Context(), address)
		},
	}
}

// forget ends the sessions at a server of which cl has tokens, and removes these and the user name.
func (c *cli) forget(ctx context.Context, address string) error {
	state, err := c.load()
	if err != nil {
		return err
	}
	for _, user := range []string{state.Users[address], c.Getenv("CODALAB_USERNAME")} {
		l := &login{cli: c, address: address, user: user}
		if err := c.endLogin(ctx, l); err != nil {
			return fmt.Errorf("logout: %w", err)
		}
	}
	if err := c.update(func(state *stateFile) { delete(state.Users, address) }); err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(map[string]string{"address": address})
	}
	return nil
}

// endLogin ends one login's session, and removes its tokens, but not the device token.
func (c *cli) endLogin(ctx context.Context, l *login) error {
	path := l.path()
	if path == "" {
		return nil
	}
	t := l.Load()
	if token := cmp.Or(t.Refresh, t.Access); token != "" {
		c.revokeAt(ctx, l.address, token)
	}
	if t.Device != "" {
		return saveFile(path, client.Token{Device: t.Device})
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// revokeAt ends the session of a token, or says that it goes on.
func (c *cli) revokeAt(ctx context.Context, address, token string) {
	api, err := c.connect(address)
	if err == nil {
		err = api.RevokeToken(ctx, token)
	}
	switch {
	case err == nil:
	case errors.Is(err, errors.ErrUnsupported):
		c.warn("The server at %s ends no sessions, as CodaLab's own: tokens that somebody has copied stay valid for up to 30 days.", address)
	default:
		c.warn("The session at %s could not be ended, and stays valid there for up to 30 days; cl sessions revoke ends it, after you have signed in again: %v", address, explain(err))
	}
}
