package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// statusView is the output of cl status, in JSON.
type statusView struct {
	Home          string                `json:"codalab_home"`
	Session       string                `json:"session"`
	ClientVersion string                `json:"client_version"`
	ServerVersion string                `json:"server_version"`
	Address       string                `json:"address"`
	UserName      string                `json:"username,omitempty"`
	Worksheet     codalab.WorksheetName `json:"current_worksheet"`
	User          *userView             `json:"user"`
}

// statusCommand is bundle_cli.py: do_status_command.
func (c *cli) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Aliases: []string{"st"}, Short: "Show the server, the worksheet and the user that cl uses",
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.showStatus(cmd.Context()) },
	}
}

func (c *cli) showStatus(ctx context.Context) error {
	at, w, err := c.worksheet(ctx, "")
	if err != nil {
		return err
	}
	user, err := at.User(ctx)
	if err != nil {
		return err
	}
	version, err := at.ServerVersion(ctx)
	if err != nil {
		return err
	}
	home, err := c.home()
	if err != nil {
		return err
	}
	state, err := c.load()
	if err != nil {
		return err
	}
	v := statusView{
		Home: home, Session: c.sessionName(), ClientVersion: program.Version(), ServerVersion: version, Address: at.Address(),
		UserName: state.Users[at.Address()], Worksheet: w.WorksheetName, User: viewUser(&user),
	}
	if c.asJSON {
		return c.printJSON(v)
	}
	lines := []string{
		"codalab_home: " + v.Home, "session: " + v.Session, "client_version: " + v.ClientVersion,
		"server_version: " + v.ServerVersion, "address: " + v.Address,
	}
	if v.UserName != "" {
		lines = append(lines, "username: "+v.UserName)
	}
	return c.printLines(append(lines, "current_worksheet: "+worksheetURL(at.Address(), w.WorksheetName), "user: "+userText(&user)))
}

// logoutCommand is bundle_cli.py: do_logout_command.
func (c *cli) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "logout [<address>|<alias>]", Short: "Forget the login at a server",
		Long: "Forget the token and the user name for a server, by default the current one.",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			current, err := c.session()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				if current.Address, err = c.address(strings.TrimSuffix(args[0], "::")); err != nil {
					return err
				}
				if !strings.Contains(current.Address, "://") {
					return usagef("%q is no address, and no alias; cl alias lists those", args[0])
				}
			}
			return c.forget(current.Address)
		},
	}
}

// forget removes the token and the user name for a server.
func (c *cli) forget(address string) error {
	state, err := c.load()
	if err != nil {
		return err
	}
	for _, user := range []string{state.Users[address], c.Getenv("CODALAB_USERNAME")} {
		l := &login{cli: c, address: address, user: user}
		if path := l.path(); path != "" {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("logout: %w", err)
			}
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
