package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func userPasswordCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	var file string
	cmd := &cobra.Command{
		Use: "passwd --data DIRECTORY NAME", Short: "Set a user's password", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: `Set a user's password, which is read as "user add" reads it. All programs in
which the user has signed in must sign in again. With "user reset" the user sets the
password, and nobody else knows it.`,
		RunE: func(_ *cobra.Command, args []string) error {
			return at.withUser(ctx, args[0], func(data *store.Store, u store.User) error {
				hashed, err := hashOf(p, file, u.Name, false)
				if err != nil {
					return err
				}
				_, err = data.SetPassword(ctx, store.NewPassword{UserID: u.ID, Hashed: hashed}, p.Now())
				return err
			})
		},
	}
	at.flags(cmd)
	cmd.Flags().StringVar(&file, "password-file", "", "the `file` whose first line is the password")
	return cmd
}

// shownReset is the output of "user reset --json".
type shownReset struct {
	User    string    `json:"user"`
	Code    string    `json:"code"`
	Page    string    `json:"page"`
	Expires time.Time `json:"expires"`
}

func userResetCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	var address string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "reset --data DIRECTORY NAME", Short: "Let a user set a new password", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: `Print a one-time code with which the user sets a new password, on a page of the
server or by "cl passwd --reset". The code is valid for an hour and once. Another
password, e-mail address or code of "user reset" ends it before. It ends a code that
the server has mailed to the user. The server keeps only its hash. Give it to the
user in a message that others do not read.

The page's address does not have the code in it: addresses are in the logs of proxies
and in the history of browsers. The user types the code into the page.`,
		RunE: func(_ *cobra.Command, args []string) error {
			page, err := resetPage(address)
			if err != nil {
				return program.Usage(err)
			}
			return at.withUser(ctx, args[0], func(data *store.Store, u store.User) error {
				code, hash := server.NewResetCode()
				expires := p.Now().Add(server.ResetLife)
				if err := data.AddReset(ctx, u.ID, hash, expires); err != nil {
					return err
				}
				return p.Print(asJSON, shownReset{u.Name, code, page, expires.UTC()}, resetText(u.Name, code, page, address, expires))
			})
		},
	}
	at.flags(cmd)
	cmd.Flags().StringVar(&address, "address", "", "the server's `address` for its users, such as https://codalab.example, to print that of the page")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// resetPage returns the address of the page for a new password; only its path if the server's address is empty.
func resetPage(address string) (string, error) {
	u, err := url.Parse(address)
	if address != "" && (err != nil || u.Host == "" || u.User != nil || (u.Scheme != "http" && u.Scheme != "https")) {
		return "", fmt.Errorf("--address %q: want https://HOST or http://HOST:PORT", address)
	}
	return strings.TrimRight(address, "/") + server.ResetPath, nil
}

func resetText(user, code, page, address string, expires time.Time) string {
	if address == "" {
		page += " at the server's address"
	}
	return fmt.Sprintf("%s can set a new password until %s, once:\n\n  code  %s\n  page  %s\n  or    cl passwd --reset\n",
		user, expires.UTC().Format("15:04 UTC"), code, page)
}

// shownSession is a session in the output of "user sessions --json".
type shownSession struct {
	ID      string    `json:"id"`
	Program string    `json:"program"`
	Client  string    `json:"client"`
	Address string    `json:"address"`
	Made    time.Time `json:"made"`
	Used    time.Time `json:"used"`
}

func userSessionsCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	var revoke, asJSON bool
	cmd := &cobra.Command{
		Use: "sessions --data DIRECTORY NAME", Short: "List or end a user's sessions", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: `List the sessions of a user: each is one sign-in of a program. The time of the last
use is some minutes late. --revoke ends all of them, and the worker
tokens and program tokens that they made; the programs have to sign in again. It also
ends the user's one-time code, and a change of the e-mail address that waits to be
confirmed.`,
		RunE: func(_ *cobra.Command, args []string) error {
			return at.withUser(ctx, args[0], func(data *store.Store, u store.User) error {
				if revoke {
					n, err := data.EndSignIns(ctx, u.ID)
					if err != nil {
						return err
					}
					return p.Print(asJSON, map[string]int64{"ended_sessions": n}, fmt.Sprintf("all sessions of %s have ended (%d), and all tokens that they made\n", u.Name, n))
				}
				sessions, err := data.Sessions(ctx, u.ID, p.Now())
				if err != nil {
					return err
				}
				shown, rows := []shownSession{}, [][]string{{"SESSION", "PROGRAM", "ADDRESS", "SIGNED IN", "LAST USED"}}
				for _, s := range sessions {
					shown = append(shown, shownSession{s.ID, s.Program, s.Client, s.Address, s.Made.UTC(), s.Used.UTC()})
					rows = append(rows, []string{s.ID, s.Program, s.Address, s.Made.UTC().Format(time.DateTime), s.Used.UTC().Format(time.DateTime)})
				}
				return p.Print(asJSON, shown, termtext.Table(rows))
			})
		},
	}
	at.flags(cmd)
	cmd.Flags().BoolVar(&revoke, "revoke", false, "end all sessions of the user, and the tokens that they made")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
