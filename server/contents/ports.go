package contents

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func (s *Ports) routes() []rest.Route {
	routes := []rest.Route{{Pattern: "PUT /bundles/{uuid}/netcat/{port}/{$}", Serve: s.netcat, Public: true}}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		routes = append(routes, rest.Route{Pattern: method + " /bundles/{uuid}/netcurl/{port}/{path...}", Serve: s.netcurl, Public: true})
	}
	return routes
}

// netcat sends a text to a port of a running bundle's container, and answers with the container's answer.
// As on CodaLab's own server, every user who may read a bundle may do that, because owners show
// demonstrations in this way (codalab/rest/bundles.py: _netcat_bundle).
func (s *Ports) netcat(w http.ResponseWriter, r *http.Request, u store.User) error {
	b, err := s.access.Readable(r.Context(), u, r.PathValue("uuid"))
	if err != nil {
		return err
	}
	var in struct {
		Message string `json:"message"`
	}
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	if b.State == codalab.StateWorkerOffline {
		return s.running.AwayRefusal(b)
	}
	if b.State != codalab.StateRunning {
		return rest.Refuse(http.StatusForbidden, "Cannot netcat bundle, bundle not running.")
	}
	data, done, err := s.talk(r, b, in.Message)
	if err != nil {
		return err
	}
	defer done()
	w.Header().Set("Content-Type", "application/octet-stream")
	guardBrowser(w.Header())
	copyStream(w, data)
	return nil
}

// guardBrowser keeps a browser from running what a bundle contains or answers, which comes from any user.
func guardBrowser(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
}

// talk sends a text to the port of the request's path. The caller calls done after reading the answer.
func (s *Ports) talk(r *http.Request, b store.Bundle, text string) (data io.Reader, done func(), err error) {
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil || port < 1 || port > 65535 {
		return nil, nil, rest.Refuse(http.StatusNotFound, "Not found: '%s'", r.URL.Path)
	}
	const most = 64 << 10 // all messages to a worker are in memory, and in one answer
	if len(text) > most {
		return nil, nil, rest.Refuse(http.StatusRequestEntityTooLarge, "The message is larger than %d bytes", most)
	}
	reply, err := s.running.ask(r.Context(), b, codalab.Message{Type: codalab.MessageNetcat, UUID: b.UUID, Port: port, Message: text})
	switch {
	case errors.Is(err, hub.ErrMoved):
		return nil, nil, rest.Refuse(http.StatusForbidden, "Cannot netcat bundle, bundle not running.")
	case err != nil:
		return nil, nil, err
	case reply.Data == nil: // CodaLab's worker sends no data if there are none
		return strings.NewReader(""), func() {}, nil
	}
	return reply.Data, reply.Done, nil
}

// netcurl forwards an HTTP request to a port of a running bundle's container. Unlike CodaLab's own
// server, it does not forward the user's credentials, and passes on the answer's status
// (codalab/rest/bundles.py: _netcurl_bundle).
func (s *Ports) netcurl(w http.ResponseWriter, r *http.Request, u store.User) error {
	b, err := s.access.Readable(r.Context(), u, r.PathValue("uuid"))
	if err != nil {
		return err
	}
	switch {
	case b.State.Final():
		return rest.Refuse(http.StatusForbidden, "Cannot netcurl bundle, bundle already finalized.")
	case b.State == codalab.StateWorkerOffline:
		return s.running.AwayRefusal(b)
	case b.State != codalab.StateRunning:
		return rest.Refuse(http.StatusForbidden, "Cannot netcurl bundle, bundle not running.")
	}
	text, err := requestText(w, r)
	if err != nil {
		return err
	}
	data, done, err := s.talk(r, b, text)
	if err != nil {
		return err
	}
	defer done()
	answer, err := http.ReadResponse(bufio.NewReader(data), r)
	if err != nil || answer.StatusCode < 200 {
		return rest.Refuse(http.StatusBadGateway, "Port %s of bundle %s does not speak HTTP", r.PathValue("port"), b.UUID)
	}
	defer answer.Body.Close()
	for name, values := range answer.Header {
		if !notForwarded(name) {
			w.Header()[name] = values
		}
	}
	guardBrowser(w.Header())
	w.WriteHeader(answer.StatusCode)
	copyStream(w, answer.Body)
	return nil
}

// notForwarded reports whether a header belongs to one connection, to the user's session here, or to
// the length of a body, which may change.
func notForwarded(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Authorization", "Cookie", "Set-Cookie", "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Expect", "Host", "Strict-Transport-Security",
		// They would hold for the whole server in a browser.
		"Clear-Site-Data", "Nel", "Report-To", "Reporting-Endpoints", "Alt-Svc", "Refresh", "Service-Worker-Allowed", "Origin-Agent-Cluster", "Set-Login":
		return true
	}
	return false
}

// requestText is a request to forward, as it is on the wire. A message to a worker holds text only.
func requestText(w http.ResponseWriter, r *http.Request) (string, error) {
	body, err := rest.ReadBody(w, r)
	switch {
	case err != nil:
		return "", err
	case !utf8.Valid(body):
		return "", rest.Refuse(http.StatusBadRequest, "Only requests with text can be forwarded to a bundle")
	}
	_, at, _ := strings.Cut(r.URL.EscapedPath(), "/netcurl/")
	_, at, _ = strings.Cut(at, "/")
	if r.URL.RawQuery != "" {
		at += "?" + r.URL.RawQuery
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s /%s HTTP/1.1\r\nHost: %s\r\n", r.Method, at, r.Host)
	for name, values := range r.Header {
		for _, value := range values {
			if !notForwarded(name) && utf8.ValidString(value) {
				fmt.Fprintf(&text, "%s: %s\r\n", name, value)
			}
		}
	}
	// The worker reads the answer until the connection ends.
	fmt.Fprintf(&text, "Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	return text.String(), nil
}
