// Package smtptest is a real SMTP server for tests, which keeps the mails that come.
package smtptest

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/mail"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// Options are the demands of a server. The zero value demands nothing, and offers no encryption.
type Options struct {
	// StartTLS offers encryption, and Implicit begins with it.
	StartTLS, Implicit bool
	// User and Password are the only ones that may send; empty for everybody.
	User, Password string
}

// Mail is a mail that has come.
type Mail struct {
	From   string
	To     []string
	Header mail.Header
	Text   string
	// Encrypted tells that the connection was.
	Encrypted bool
}

// Server is a server that runs.
type Server struct {
	// Address is HOST:PORT. It stays over Stop and Start.
	Address string
	// Roots certify the server.
	Roots *x509.CertPool

	tb      testing.TB
	options Options
	web     *httptest.Server // has the certificate

	mu      sync.Mutex
	running *smtp.Server
	mails   []Mail
	refuse  func(to string) error
	arrived func()
}

// Start starts a server, which ends with the test.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	s := &Server{tb: tb, options: o, Address: "127.0.0.1:0", Roots: x509.NewCertPool(), web: httptest.NewTLSServer(nil)}
	tb.Cleanup(s.web.Close)
	s.Roots.AddCert(s.web.Certificate())
	s.Restart()
	tb.Cleanup(s.Stop)
	return s
}

// Restart starts the server after Stop, at its address.
func (s *Server) Restart() {
	s.tb.Helper()
	var network net.ListenConfig
	listener, err := network.Listen(context.Background(), "tcp", s.Address) // it outlives the test's context
	testenv.Must(s.tb, err)
	s.Address = listener.Addr().String()
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return &session{Server: s, conn: c}, nil }))
	server.Domain, server.AllowInsecureAuth = "mail.example", !s.options.StartTLS
	if s.options.StartTLS {
		server.TLSConfig = s.web.TLS
	}
	if s.options.Implicit {
		listener = &tlsListener{listener, s.web.TLS}
	}
	s.mu.Lock()
	s.running = server
	s.mu.Unlock()
	ended := background.Go(func() { _ = server.Serve(listener) })
	s.tb.Cleanup(func() { _ = server.Close(); <-ended })
}

// Stop ends the server and its connections. Nobody answers at its address then.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.running.Close() // it may have ended
}

// Refuse lets f decide on recipients: nil takes them. f may block.
func (s *Server) Refuse(f func(to string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

// OnArrival calls f when a mail has come, before the sender is told that.
func (s *Server) OnArrival(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived = f
}

// Mails are the mails that have come.
func (s *Server) Mails() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Mail(nil), s.mails...)
}

// Await waits for the n-th mail, and returns it.
func (s *Server) Await(n int) Mail {
	s.tb.Helper()
	testenv.Await(s.tb, "a mail", func() bool { return len(s.Mails()) >= n })
	return s.Mails()[n-1]
}

// session is a connection.
type session struct {
	*Server
	conn *smtp.Conn
	in   bool
	mail Mail
}

// AuthMechanisms is PLAIN, if the server wants a password.
func (s *session) AuthMechanisms() []string {
	if s.options.User == "" {
		return nil
	}
	return []string{sasl.Plain}
}

// Auth checks a password.
func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != s.options.User || password != s.options.Password {
			return smtp.ErrAuthFailed
		}
		s.in = true
		return nil
	}), nil
}

// Mail begins a mail.
func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.options.User != "" && !s.in {
		return smtp.ErrAuthRequired
	}
	_, encrypted := s.conn.TLSConnectionState()
	s.mail = Mail{From: from, Encrypted: encrypted}
	return nil
}

// Rcpt adds a recipient.
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.mu.Lock()
	refuse := s.refuse
	s.mu.Unlock()
	if refuse != nil {
		if err := refuse(to); err != nil {
			return err
		}
	}
	s.mail.To = append(s.mail.To, to)
	return nil
}

// Data takes a mail.
func (s *session) Data(r io.Reader) error {
	message, err := mail.ReadMessage(r)
	if err != nil {
		return errors.Join(err, smtp.ErrDataReset)
	}
	text, err := io.ReadAll(decoded(message))
	if err != nil {
		return err
	}
	s.mail.Header, s.mail.Text = message.Header, strings.ReplaceAll(string(text), "\r\n", "\n")
	s.mu.Lock()
	s.mails = append(s.mails, s.mail)
	arrived := s.arrived
	s.mu.Unlock()
	if arrived != nil {
		arrived()
	}
	return nil
}

// Reset ends a mail.
func (s *session) Reset() { s.mail = Mail{} }

// Logout ends the connection.
func (s *session) Logout() error { return nil }
