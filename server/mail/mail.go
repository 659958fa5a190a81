// Package mail sends mails by the SMTP server of a site.
package mail

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// TLS is a way of encryption.
type TLS string

// The ways. StartTLS is a connection that is encrypted after its begin, or else ended; Implicit one that begins so.
const (
	StartTLS TLS = "starttls"
	Implicit TLS = "tls"
	None     TLS = "none"
)

// Options name an SMTP server. The zero value names none.
type Options struct {
	// Server is HOST or HOST:PORT. The default of the port depends on TLS: 587, 465 or 25.
	Server string
	TLS    TLS
	// From is the sender's address, such as "CodaLab <codalab@example.org>".
	From string
	// User signs in with the password. Without a user nobody signs in.
	User string
	// Password returns the password; it is called for each connection.
	Password func() (string, error)
	// Roots are the authorities that certify the server; nil means those of the system.
	Roots *x509.CertPool
}

// Check fails for options that cannot work.
func (o Options) Check() error {
	if _, _, err := o.place(); err != nil {
		return err
	}
	switch o.TLS {
	case StartTLS, Implicit:
	case None:
		if o.User != "" && !o.here() {
			return errors.New("a password would go over the network unencrypted: want starttls or tls")
		}
	default:
		return fmt.Errorf("%q is no way to encrypt: want starttls, tls or none", string(o.TLS))
	}
	if _, err := mail.ParseAddress(o.From); err != nil {
		return fmt.Errorf("%q is no address of a sender", o.From)
	}
	if (o.User == "") != (o.Password == nil) {
		return errors.New("a user and a password need each other")
	}
	return nil
}

// place returns the host and the port.
func (o Options) place() (host string, port int, err error) {
	host, text := o.Server, map[TLS]string{StartTLS: "587", Implicit: "465"}[o.TLS]
	if strings.Contains(o.Server, ":") {
		if host, text, err = net.SplitHostPort(o.Server); err != nil {
			return "", 0, fmt.Errorf("%q is no server: want HOST or HOST:PORT", o.Server)
		}
	}
	port, err = strconv.Atoi(cmp.Or(text, "25"))
	if host == "" || strings.ContainsAny(host, " /@") || err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("%q is no server: want HOST or HOST:PORT", o.Server)
	}
	return host, port, nil
}

// here reports whether the server is on this machine.
func (o Options) here() bool {
	host, _, _ := o.place() // Check has called it
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Mail is one mail, in plain text.
type Mail struct {
	// To is the address of one person.
	To, Subject, Text string
	// ReplyTo is the address for answers; empty for the sender's.
	ReplyTo string
	// ID makes the mail's Message-ID. Two mails with one ID are one mail that came twice.
	ID string
	At time.Time
}

// within bounds a connection.
const within = time.Minute

// Send sends a mail. The error is Permanent if the server refuses the mail for good. Send ends with ctx, also if the server is
// silent.
func (o Options) Send(ctx context.Context, m Mail) error {
	message, err := o.message(m)
	if err != nil {
		return err
	}
	return o.connected(ctx, func(c *gomail.Client) error {
		err := c.Send(message)
		if message.IsDelivered() { // the rest of the talk may fail
			return nil
		}
		refused, ok := errors.AsType[*gomail.SendError](err)
		if ok && refused.ErrorCode() >= 500 && (refused.Is(&gomail.SendError{Reason: gomail.ErrSMTPRcptTo}) ||
			refused.Is(&gomail.SendError{Reason: gomail.ErrSMTPData}) || refused.Is(&gomail.SendError{Reason: gomail.ErrSMTPDataClose})) {
			return &permanentError{err}
		}
		return err //nolint:wrapcheck // connected does
	})
}

// Try connects and signs in, and sends nothing.
func (o Options) Try(ctx context.Context) error {
	return o.connected(ctx, func(*gomail.Client) error { return nil })
}

// message makes the mail. It fails for addresses that are none. The library encodes what headers cannot have.
func (o Options) message(m Mail) (*gomail.Msg, error) {
	message := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if err := message.From(o.From); err != nil {
		return nil, &permanentError{fmt.Errorf("%q is no address of a sender", o.From)}
	}
	if err := message.To(m.To); err != nil {
		return nil, &permanentError{fmt.Errorf("%q is no address", m.To)}
	}
	if m.ReplyTo != "" {
		if err := message.ReplyTo(m.ReplyTo); err != nil {
			return nil, &permanentError{fmt.Errorf("%q is no address for answers", m.ReplyTo)}
		}
	}
	sender, err := mail.ParseAddress(o.From)
	if err != nil {
		return nil, &permanentError{err}
	}
	message.SetMessageIDWithValue(m.ID + sender.Address[strings.LastIndex(sender.Address, "@"):])
	message.SetDateWithValue(m.At)
	message.Subject(oneLine(m.Subject))
	message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no vacation answers it
	message.SetBodyString(gomail.TypeTextPlain, m.Text)
	return message, nil
}

// oneLine replaces what would end a header.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// connected calls do with a connection.
func (o Options) connected(ctx context.Context, do func(*gomail.Client) error) error {
	host, port, err := o.place()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel() // which closes the connection
	encrypt := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, RootCAs: o.Roots}
	use := []gomail.Option{
		gomail.WithPort(port), gomail.WithTimeout(within), gomail.WithTLSConfig(encrypt),
		gomail.WithDialContextFunc(func(_ context.Context, network, address string) (net.Conn, error) {
			if o.TLS == Implicit {
				return dial(ctx, network, address, encrypt)
			}
			return dial(ctx, network, address, nil)
		}),
	}
	switch o.TLS {
	case Implicit: // dial has encrypted: the library sees that, and no server offers STARTTLS then (RFC 3207, section 4.2)
		use = append(use, gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	case None:
		use = append(use, gomail.WithTLSPolicy(gomail.NoTLS))
	default:
		use = append(use, gomail.WithTLSPolicy(gomail.TLSMandatory))
	}
	if o.User != "" {
		password, err := o.Password()
		if err != nil {
			return err
		}
		kind := gomail.SMTPAuthAutoDiscover
		if o.TLS == None { // on this machine
			kind = gomail.SMTPAuthPlainNoEnc
		}
		use = append(use, gomail.WithSMTPAuth(kind), gomail.WithUsername(o.User), gomail.WithPassword(password))
	}
	client, err := gomail.NewClient(host, use...)
	if err == nil {
		err = client.DialWithContext(ctx)
	}
	if err == nil {
		err = do(client)
		_ = client.Close() // the mail has been sent, or not
	}
	if err != nil {
		// After the end of ctx the library's error is that of a closed connection.
		return fmt.Errorf("mail by %s: %w", o.Server, cmp.Or(ctx.Err(), err))
	}
	return nil
}

// dial connects, and encrypts the connection unless encrypt is nil. The connection is closed when ctx ends: the library takes no
// notice of a context once it is connected, and waits for a server that is silent.
func dial(ctx context.Context, network, address string, encrypt *tls.Config) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	// It closes the TCP connection: Close of a TLS connection would wait for a writer.
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	if encrypt == nil {
		return conn, nil
	}
	encrypted := tls.Client(conn, encrypt)
	return encrypted, encrypted.HandshakeContext(ctx) //nolint:wrapcheck // connected does
}

// permanentError is an error that another try would have again.
type permanentError struct{ error }

// Unwrap returns the error.
func (e *permanentError) Unwrap() error { return e.error }

// Permanent reports whether another try would fail in the same way.
func Permanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}
