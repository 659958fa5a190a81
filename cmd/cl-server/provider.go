package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/server/sso"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// provider are the flags for sign-ins by a provider of OpenID Connect.
type provider struct {
	issuer, clientID, secretFile, publicURL, usernameClaim string
	create                                                 bool
}

func (p *provider) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.issuer, "oidc-issuer", "", "the `address` of a provider of OpenID Connect by which users may sign in")
	f.StringVar(&p.clientID, "oidc-client-id", "", "the `id` by which the provider knows this server")
	f.StringVar(&p.secretFile, "oidc-client-secret-file", "", "the `file` with the provider's secret for this server, which only the server's account may read")
	f.StringVar(&p.publicURL, "public-url", "", "the `address` at which browsers reach this server, such as https://codalab.example.org")
	f.StringVar(&p.usernameClaim, "oidc-username-claim", "", "the `claim` that names users here, such as preferred_username: whoever has a user's name there becomes that user at the first sign-in")
	f.BoolVar(&p.create, "oidc-create-users", false, "make a user for each new person, with the name in --oidc-username-claim; no existing user is taken over by name then")
}

// options returns the settings of the provider.
func (p *provider) options() (sso.Options, error) {
	o := sso.Options{Issuer: p.issuer, ClientID: p.clientID, URL: strings.TrimRight(p.publicURL, "/"), UsernameClaim: p.usernameClaim}
	if p.issuer == "" {
		if p.clientID+p.secretFile+p.usernameClaim != "" || p.create {
			return o, errors.New("the flags of a provider need --oidc-issuer")
		}
		return sso.Options{}, nil
	}
	if p.secretFile != "" {
		o.ClientSecret = func() (string, error) { return account.ReadSecret("client secret", p.secretFile) }
		if _, err := o.ClientSecret(); err != nil {
			return o, err
		}
	}
	if p.create {
		var u store.User
		usual := newUserQuotas()
		if err := usual.set(&u); err != nil {
			return o, err
		}
		o.Create = func() (timeQuota, diskQuota, parallelRuns int64) { return u.TimeQuota, u.DiskQuota, u.ParallelRunQuota }
	}
	return o, o.Check()
}

func userLinkCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	var issuer, subject string
	cmd := &cobra.Command{
		Use: "link --data DIRECTORY NAME", Short: "Show or add a user's sign-in by a provider", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: `Show the persons at providers of OpenID Connect who sign in as a user, or add one:
the person with the subject (the claim "sub") at the issuer. The page of a sign-in
by somebody who is no user here shows both.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if (issuer == "") != (subject == "") {
				return program.Usage(errors.New("--oidc-issuer and --oidc-subject need each other"))
			}
			if issuer != "" {
				if err := sso.CheckAddress("--oidc-issuer", issuer); err != nil {
					return program.Usage(err)
				}
			}
			return at.withUser(ctx, args[0], func(data *store.Store, u store.User) error {
				if issuer != "" {
					err := data.Link(ctx, store.Identity{Issuer: issuer, Subject: subject, UserID: u.ID, Linked: store.Time{Time: p.Now()}})
					if errors.Is(err, store.ErrExists) {
						return errors.New("this person signs in as a user already; cl-server user unlink ends that")
					}
					if err != nil {
						return err
					}
				}
				all, err := data.Identities(ctx, u.ID)
				var text strings.Builder
				for _, one := range all {
					fmt.Fprintf(&text, "%s %s\n", one.Issuer, one.Subject)
				}
				return errors.Join(err, p.Print(false, nil, text.String()))
			})
		},
	}
	at.flags(cmd)
	cmd.Flags().StringVar(&issuer, "oidc-issuer", "", "the provider's `address`")
	cmd.Flags().StringVar(&subject, "oidc-subject", "", "the person's `subject` there")
	return cmd
}

func userUnlinkCommand(ctx context.Context) *cobra.Command {
	var at dataLocation
	cmd := &cobra.Command{
		Use: "unlink --data DIRECTORY NAME", Short: "End a user's sign-in by providers", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: `End a user's sign-in by providers. The sessions that are there go on: "user sessions
--revoke" ends them.`,
		RunE: func(_ *cobra.Command, args []string) error {
			return at.withUser(ctx, args[0], func(data *store.Store, u store.User) error {
				n, err := data.Unlink(ctx, u.ID)
				if err == nil && n == 0 {
					return fmt.Errorf("%s does not sign in by a provider", u.Name)
				}
				return err
			})
		},
	}
	at.flags(cmd)
	return cmd
}
