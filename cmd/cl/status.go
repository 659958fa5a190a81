package main

import (
	"context"

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
