package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/mail"
)

// mailFlags are the flags for mails to users.
type mailFlags struct {
	server, tls, from, user, passwordFile string
}

func (m *mailFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&m.server, "mail-server", "", "the SMTP `server` that sends mails to users, HOST or HOST:PORT")
	f.StringVar(&m.tls, "mail-tls", string(mail.StartTLS), "`how` its connection is encrypted: starttls (port 587), tls (port 465), or none (port 25) for a relay of the site without a password")
	f.StringVar(&m.from, "mail-from", "", "the `address` of the sender, such as \"CodaLab <codalab@example.org>\"")
	f.StringVar(&m.user, "mail-user", "", "the `name` by which the server signs in there; none by default")
	f.StringVar(&m.passwordFile, "mail-password-file", "", "the `file` with its password, which only the server's account may read")
}

// options returns the settings of the SMTP server.
func (m *mailFlags) options() (mail.Options, error) {
	if m.server == "" {
		if m.from+m.user+m.passwordFile != "" {
			return mail.Options{}, errors.New("the flags of mails need --mail-server")
		}
		return mail.Options{}, nil
	}
	o := mail.Options{Server: m.server, TLS: mail.TLS(m.tls), From: m.from, User: m.user}
	if m.passwordFile != "" {
		o.Password = func() (string, error) { return account.ReadSecret("password of the SMTP server", m.passwordFile) }
		if _, err := o.Password(); err != nil {
			return o, err
		}
	}
	if err := o.Check(); err != nil {
		return o, fmt.Errorf("the flags of mails: %w", err)
	}
	return o, nil
}

func mailCommand(ctx context.Context, p program.Process) *cobra.Command {
	var m mailFlags
	var to string
	cmd := &cobra.Command{
		Use: "mail --mail-server HOST --mail-from ADDRESS", Short: "Check the SMTP server, or send a mail to try it", Args: program.WrongUsage(cobra.NoArgs),
		Long: `Connect to an SMTP server, and sign in, as "run" with these flags does. With --to,
also send a mail.

Exit codes: 0 the server takes mails; 1 it does not, with the reason; 2 the command
line is wrong.`,
		RunE: func(*cobra.Command, []string) error {
			if m.server == "" {
				return program.Usage(errors.New("--mail-server is needed: the SMTP server"))
			}
			if err := checkFlagFiles(p, map[string]string{"--mail-password-file": m.passwordFile}); err != nil {
				return err
			}
			o, err := m.options()
			switch {
			case err != nil:
				return program.Usage(err)
			case to == "":
				if err := o.Try(ctx); err != nil {
					return err
				}
				return p.Print(false, nil, m.server+" takes the connection and the login.\n")
			}
			err = o.Send(ctx, mail.Mail{
				To: to, Subject: "CodaLab: a mail to try the server", Text: "cl-server can send mails by " + m.server + ".\n", ID: codalab.NewUUID(), At: p.Now(),
			})
			if err != nil {
				return err
			}
			return p.Print(false, nil, m.server+" has taken a mail to "+to+".\n")
		},
	}
	m.flags(cmd.Flags())
	cmd.Flags().StringVar(&to, "to", "", "the `address` to which a mail is sent")
	return cmd
}
