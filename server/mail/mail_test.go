package mail_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/smtptest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/mail"
)

func secret(text string) func() (string, error) { return func() (string, error) { return text, nil } }

func one() mail.Mail {
	return mail.Mail{
		To: "ann@example.org", Subject: "CodaLab: train ready", Text: "train is ready.\nGrüße, 学習率\n", ID: "0x1",
		At: time.Date(2026, 11, 29, 3, 0, 0, 0, time.UTC),
	}
}

func TestMailGoesThroughEachKindOfServer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		server smtptest.Options
		use    mail.Options
	}{
		{"STARTTLS with a password", smtptest.Options{StartTLS: true, User: "u", Password: "p"}, mail.Options{TLS: mail.StartTLS, User: "u", Password: secret("p")}},
		{"STARTTLS", smtptest.Options{StartTLS: true}, mail.Options{TLS: mail.StartTLS}},
		{"TLS with a password", smtptest.Options{Implicit: true, User: "u", Password: "p"}, mail.Options{TLS: mail.Implicit, User: "u", Password: secret("p")}},
		{"relay of the site", smtptest.Options{}, mail.Options{TLS: mail.None}},
		{"on this machine", smtptest.Options{User: "u", Password: "p"}, mail.Options{TLS: mail.None, User: "u", Password: secret("p")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := smtptest.Start(t, test.server)
			o := test.use
			o.Server, o.Roots, o.From = s.Address, s.Roots, "CodaLab <codalab@example.org>"
			testenv.Must(t, o.Check())
			testenv.Must(t, o.Try(t.Context()))
			if n := len(s.Mails()); n > 0 {
				t.Errorf("a try has sent %d mails", n)
			}
			testenv.Must(t, o.Send(t.Context(), one()))
			m := s.Await(1)
			if m.From != "codalab@example.org" || len(m.To) != 1 || m.To[0] != "ann@example.org" || m.Text != one().Text || m.Encrypted != (o.TLS != mail.None) {
				t.Errorf("%+v", m)
			}
			for name, want := range map[string]string{
				"Subject": "CodaLab: train ready", "From": `"CodaLab" <codalab@example.org>`, "To": "<ann@example.org>", "Message-Id": "<0x1@example.org>",
				"Auto-Submitted": "auto-generated", "Date": "Sun, 29 Nov 2026 03:00:00 +0000",
			} {
				if got := m.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestMailIsNeverSentUnencryptedOrToAServerThatNobodyCertifies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		server smtptest.Options
		use    mail.TLS
		want   string
	}{
		{"no STARTTLS", smtptest.Options{}, mail.StartTLS, "STARTTLS"},
		{"unknown authority, STARTTLS", smtptest.Options{StartTLS: true}, mail.StartTLS, "certificate"},
		{"unknown authority, TLS", smtptest.Options{Implicit: true}, mail.Implicit, "certificate"},
	} {
		s := smtptest.Start(t, test.server)
		o := mail.Options{Server: s.Address, TLS: test.use, From: "c@example.org", User: "u", Password: secret("p"), Roots: x509.NewCertPool()}
		err := o.Send(t.Context(), one())
		if err == nil || !strings.Contains(err.Error(), test.want) || mail.Permanent(err) || len(s.Mails()) > 0 {
			t.Errorf("%s: %v, %d mails", test.name, err, len(s.Mails()))
		}
	}
}

// A server that says nothing more at some step, or none at all, holds nobody back: a mail ends with its context.
func TestSilentServerIsLeftWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(nil) // has a certificate
	t.Cleanup(web.Close)
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	talks := []string{"", "220 mail.example\r\n", "250-mail.example\r\n250 STARTTLS\r\n"}
	for _, how := range []mail.TLS{mail.None, mail.StartTLS, mail.Implicit} {
		for said := range talks {
			t.Run(fmt.Sprint(how, said), func(t *testing.T) {
				t.Parallel()
				var encrypt *tls.Config
				if how == mail.Implicit && said > 0 { // else it is silent before the handshake
					encrypt = web.TLS
				}
				address, silent := silentAfter(t, talks[:said+1], encrypt)
				o := mail.Options{Server: address, TLS: how, From: "c@example.org", Roots: roots}
				ctx, cancel := context.WithCancel(t.Context())
				ended := background.Go(func() {
					if err := o.Send(ctx, one()); !errors.Is(err, context.Canceled) || mail.Permanent(err) {
						t.Error(err)
					}
				})
				testenv.Receive(t, "the server's silence", silent)
				cancel()
				testenv.Receive(t, "the end of the mail", ended)
			})
		}
	}
}

// silentAfter is a server that says texts, and then waits for the end of the connection. It encrypts unless encrypt is nil.
func silentAfter(t *testing.T, texts []string, encrypt *tls.Config) (address string, silent <-chan struct{}) {
	t.Helper()
	var network net.ListenConfig
	listener, err := network.Listen(t.Context(), "tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	quiet := make(chan struct{})
	ended := background.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if encrypt != nil {
			conn = tls.Server(conn, encrypt)
		}
		for i, text := range texts {
			if i > 1 { // the client speaks after the greeting
				_, _ = conn.Read(make([]byte, 1<<10))
			}
			_, _ = io.WriteString(conn, text)
		}
		close(quiet)
		_, _ = io.Copy(io.Discard, conn)
	})
	t.Cleanup(func() { _ = listener.Close(); <-ended })
	return listener.Addr().String(), quiet
}

func TestRefusalsForGoodArePermanentAndOthersAreNot(t *testing.T) {
	t.Parallel()
	s := smtptest.Start(t, smtptest.Options{})
	o := mail.Options{Server: s.Address, TLS: mail.None, From: "c@example.org"}
	for code, permanent := range map[int]bool{550: true, 450: false} {
		s.Refuse(func(string) error { return &smtp.SMTPError{Code: code, Message: "no"} })
		if err := o.Send(t.Context(), one()); err == nil || mail.Permanent(err) != permanent {
			t.Errorf("%d: %v", code, err)
		}
	}
	s.Refuse(nil)
	m := one()
	m.To = "no address"
	if err := o.Send(t.Context(), m); !mail.Permanent(err) {
		t.Error(err)
	}
	s.Stop()
	err := o.Send(t.Context(), one())
	if err == nil || mail.Permanent(err) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("of a server that is away: %v", err)
	}
	wrong := smtptest.Start(t, smtptest.Options{User: "u", Password: "p"})
	o = mail.Options{Server: wrong.Address, TLS: mail.None, From: "c@example.org", User: "u", Password: secret("verysecret")}
	if err := o.Try(t.Context()); err == nil || mail.Permanent(err) || strings.Contains(err.Error(), "verysecret") {
		t.Errorf("wrong password: %v", err)
	}
	o.Password = func() (string, error) { return "", errors.New("no file") }
	if err := o.Try(t.Context()); err == nil || err.Error() != "no file" {
		t.Error(err)
	}
}

// Names of bundles and users come from others.
func TestNobodyAddsHeadersOrRecipients(t *testing.T) {
	t.Parallel()
	s := smtptest.Start(t, smtptest.Options{})
	o := mail.Options{Server: s.Address, TLS: mail.None, From: "c@example.org"}
	m := one()
	m.Subject = "x\r\nBcc: eve@example.org\r\n\r\nbody ü\x00"
	m.Text = "a\n.\r\nMAIL FROM:<eve@example.org>\r\n"
	testenv.Must(t, o.Send(t.Context(), m))
	got := s.Await(1)
	if got.Header.Get("Bcc") != "" || len(got.To) != 1 || !strings.Contains(got.Text, "MAIL FROM:<eve@example.org>") {
		t.Errorf("%+v", got)
	}
	for _, to := range []string{"a@example.org, eve@example.org", "a@example.org\r\nRCPT TO:<eve@example.org>", "a@example.org>\r\nBcc: <eve@example.org"} {
		m := one()
		m.To = to
		if err := o.Send(t.Context(), m); !mail.Permanent(err) || len(s.Mails()) > 1 {
			t.Errorf("%q: %v", to, err)
		}
		m = one()
		m.ReplyTo = to
		if err := o.Send(t.Context(), m); !mail.Permanent(err) || len(s.Mails()) > 1 {
			t.Errorf("answers to %q: %v", to, err)
		}
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	good := mail.Options{Server: "smtp.example.org", TLS: mail.StartTLS, From: "c@example.org"}
	testenv.Must(t, good.Check())
	for want, change := range map[string]func(*mail.Options){
		"want HOST or HOST:PORT":            func(o *mail.Options) { o.Server = "smtp.example.org:x" },
		`"a@b" is no server`:                func(o *mail.Options) { o.Server = "a@b" },
		`":25" is no server`:                func(o *mail.Options) { o.Server = ":25" },
		`"ssl" is no way to encrypt`:        func(o *mail.Options) { o.TLS = "ssl" },
		`"nobody" is no address`:            func(o *mail.Options) { o.From = "nobody" },
		`"a@b, c@d" is no address`:          func(o *mail.Options) { o.From = "a@b, c@d" },
		"need each other":                   func(o *mail.Options) { o.User = "u" },
		"over the network unencrypted":      func(o *mail.Options) { o.TLS, o.User, o.Password = mail.None, "u", secret("p") },
		`"smtp.example.org:0" is no server`: func(o *mail.Options) { o.Server = "smtp.example.org:0" },
	} {
		o := good
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
