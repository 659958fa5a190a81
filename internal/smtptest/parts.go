package smtptest

import (
	"crypto/tls"
	"io"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
)

// decoded is the text of a message.
func decoded(m *mail.Message) io.Reader {
	if strings.EqualFold(m.Header.Get("Content-Transfer-Encoding"), "quoted-printable") {
		return quotedprintable.NewReader(m.Body)
	}
	return m.Body
}

// tlsListener encrypts connections from their begin.
type tlsListener struct {
	net.Listener
	config *tls.Config
}

// Accept waits for a connection.
func (l *tlsListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tls.Server(c, l.config), nil
}
