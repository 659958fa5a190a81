package main

import (
	"context"
	"fmt"
	"net/mail"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func userEmailCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	cmd := &cobra.Command{
		Use: "email --data DIRECTORY NAME [ADDRESS]", Short: "Show or set a user's e-mail address", Args: program.WrongUsage(cobra.RangeArgs(1, 2)),
		Long: `Show or set the address to which the server sends the user mails (cl wait --notify
mail). Users change it themselves where "run" has --mail-server and --public-url, and
confirm the new one; a change by this command ends such a wish, and a one-time code
for a new password. "" removes it. Make sure that it is the user's own: with
--oidc-issuer, the person with this address at the provider signs in as the user.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 2 && args[1] != "" {
				if a, err := mail.ParseAddress(args[1]); err != nil || a.Address != args[1] {
					return program.Usage(fmt.Errorf("%q is no address: want NAME@HOST", args[1]))
				}
			}
			return at.withUser(ctx, args[0], func(data *store.Store, u store.User) error {
				if len(args) == 2 {
					var err error
					if u, err = data.ChangeUser(ctx, u.ID, func(u *store.User) error { u.Email = args[1]; return nil }); err != nil {
						return err
					}
				}
				if u.Email == "" {
					return nil
				}
				return p.Print(false, nil, u.Email+"\n")
			})
		},
	}
	at.flags(cmd)
	return cmd
}
