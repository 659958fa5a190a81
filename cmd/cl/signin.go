package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// loginCommand is a command of our own: CodaLab's cl asks for the password when it needs it.
func (c *cli) loginCommand() *cobra.Command {
	var sso bool
	cmd := &cobra.Command{
		Use: "login [<address>|<alias>]", Short: "Sign in to a server",
		Long: `Sign in to a server, by default the current one. cl asks for your name and password
where it has no tokens of yours. All other commands do that, too.

With --sso you sign in by a browser, on whatever machine: cl shows the address of a
page and a code to type there, and waits. Never type a code that somebody has sent
you. The server needs a provider of sign-ins (cl-server run --oidc-issuer).`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := c.namedServer(args)
			if err != nil {
				return err
			}
			user := ""
			if sso {
				user, err = c.signInByBrowser(cmd.Context(), address)
			} else {
				user, err = c.signInByPassword(cmd.Context(), address)
			}
			if err != nil {
				return err
			}
			return c.printResult(map[string]string{"address": address, "user": user}, "Signed in to %s as %s", address, user)
		},
	}
	cmd.Flags().BoolVar(&sso, "sso", false, "sign in by a browser")
	return cmd
}

// namedServer returns the address of the server that a command's only argument names, by default the current one.
func (c *cli) namedServer(args []string) (string, error) {
	if len(args) == 0 {
		current, err := c.session()
		return current.Address, err
	}
	address, err := c.address(strings.TrimSuffix(args[0], "::"))
	if err == nil && !strings.Contains(address, "://") {
		err = refusef("%q is no address, and no alias; cl alias lists those", args[0])
	}
	return address, err
}

func (c *cli) signInByPassword(ctx context.Context, address string) (string, error) {
	api, err := c.connect(address)
	if err != nil {
		return "", err
	}
	u, err := api.User(ctx)
	return u.UserName, err
}

// signInByBrowser gets tokens for a user who signs in by a browser, and keeps them as those that a password gets.
func (c *cli) signInByBrowser(ctx context.Context, address string) (string, error) {
	api, err := client.New(address, client.Options{
		ClientID: client.CommandClient, Now: c.Now,
		Credentials: func(context.Context) (string, string, error) { return "", "", errNoCredentials },
	})
	if err != nil {
		return "", refusef("%v", err)
	}
	token, err := api.SignInByBrowser(ctx, func(codes codalab.DeviceAnswer) {
		life := time.Duration(codes.Seconds * float64(time.Second))
		fmt.Fprintf(c.Stderr, "Open %s in a browser, on this machine or another one,\nand type the code %s there within %s.\n",
			codes.Page, codes.UserCode, codalab.SpellDuration(life))
	})
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return "", refusef("the server at %s has no sign-in by a browser; cl login asks for a password", address)
	case errors.Is(err, client.ErrNotSignedIn):
		return "", refusef("%v; run cl login --sso again", err)
	case err != nil:
		return "", err
	}
	u, err := api.User(ctx)
	if err != nil {
		return "", err
	}
	l := &login{cli: c, address: address, user: u.UserName}
	token.Device = l.Load().Device // it is of use to sign-ins with a password
	if err := l.save(token); err != nil {
		return "", fmt.Errorf("keep the sign-in: %w", err)
	}
	if other := c.Getenv("CODALAB_USERNAME"); other != "" && other != u.UserName {
		c.warn("CODALAB_USERNAME is %s: unset it to go on as %s", other, u.UserName)
	}
	return u.UserName, nil
}
