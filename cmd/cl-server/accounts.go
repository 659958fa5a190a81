package main

import (
	"errors"
	"fmt"
	"net/mail"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/sso"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// accountFlags are the flags for accounts that people care for themselves, by mail.
type accountFlags struct {
	help    string
	signUp  bool
	domains []string
}

func (a *accountFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&a.help, "help-address", "", "the `address` that receives messages of users to the operator (default: that of --mail-from)")
	f.BoolVar(&a.signUp, "sign-up", false, "let people make accounts for themselves, which they confirm by mail; needs --mail-server and --public-url")
	f.StringArrayVar(&a.domains, "sign-up-domain", nil, "a `domain`, such as example.org, to whose e-mail addresses --sign-up is confined; may be repeated")
}

// set checks the flags together with those of mails and the provider, and sets their part of a configuration.
func (a *accountFlags) set(c *server.Config, publicURL string) error {
	publicURL = strings.TrimRight(publicURL, "/")
	if publicURL != "" && c.Mail.Server != "" && c.SSO.Issuer == "" { // else nothing has the address in it, or the provider's flags were checked
		if err := sso.CheckAddress("--public-url", publicURL); err != nil {
			return err
		}
	}
	switch {
	case a.help != "" && c.Mail.Server == "":
		return errors.New("--help-address needs --mail-server")
	case len(a.domains) > 0 && !a.signUp:
		return errors.New("--sign-up-domain needs --sign-up")
	case a.signUp && (c.Mail.Server == "" || publicURL == ""):
		return errors.New("--sign-up needs --mail-server and --public-url: an account is confirmed by a link in a mail")
	case a.signUp && c.SSO.Issuer != "":
		return errors.New("--sign-up and --oidc-issuer exclude each other: --oidc-create-users makes users for the provider's people")
	}
	if a.help != "" {
		if to, err := mail.ParseAddress(a.help); err != nil || to.Address != a.help {
			return fmt.Errorf("--help-address %q is no address: want NAME@HOST", a.help)
		}
	}
	for _, domain := range a.domains {
		if domain == "" || strings.ContainsAny(domain, "@ /") {
			return fmt.Errorf("--sign-up-domain %q is no domain: want one such as example.org", domain)
		}
	}
	c.PublicURL, c.HelpAddress = publicURL, a.help
	c.SignUp.Open, c.SignUp.Domains = a.signUp, a.domains
	var u store.User
	usual := newUserQuotas()
	err := usual.set(&u)
	c.SignUp.TimeQuota, c.SignUp.DiskQuota, c.SignUp.ParallelRunQuota = u.TimeQuota, u.DiskQuota, u.ParallelRunQuota
	return err
}
