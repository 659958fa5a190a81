package pages

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/markup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/preview"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/selfcall"
)

//go:embed html/*.html
var htmlFiles embed.FS

// Config has what Pages needs. All fields but the last are required.
type Config struct {
	Log *slog.Logger
	Now func() time.Time
	// SignIn begins a browser's session, and sets its cookie, rest.SessionCookie. It fails with a rest.RefusalError: 401 for
	// a wrong name or password, 429 after too many of them. SignOut ends the session.
	SignIn  func(w http.ResponseWriter, r *http.Request, name, password string) error
	SignOut func(http.ResponseWriter, *http.Request) error
	// Follow returns a context for a request that ends with its user's sign-in, too. Its caller calls leave in the end.
	Follow func(*http.Request) (ctx context.Context, leave func(), err error)
	// StillSignedIn asks whether the sign-in of a request that is followed goes on: a rest.RefusalError of status 401 if not.
	StillSignedIn func(ctx context.Context) error
	// Address returns the address of a request's client.
	Address func(*http.Request) string
	// Encrypted reports whether a client sent a request by TLS.
	Encrypted func(*http.Request) bool
	// Mails offers a link by mail for a new password, and SignUp a new account. They are not required.
	Mails, SignUp bool
}

// Pages serves the web pages. It is safe for concurrent use.
type Pages struct {
	config    Config
	api       http.Handler
	templates map[string]*template.Template
	markup    markup.Markup
	feed      *feed
	exports   exports
	sent      sentForms
	static    digests
}

// New returns Pages. It panics if a template has a mistake.
func New(c Config) *Pages {
	p := &Pages{config: c, templates: map[string]*template.Template{}, markup: markup.New(), feed: newFeed(), exports: exports{of: map[string]int{}}, static: newDigests()}
	base := template.Must(template.New("base.html").Funcs(functions()).Funcs(template.FuncMap{"static": p.static.address}).
		ParseFS(htmlFiles, "html/base.html", "html/parts.html", "html/blocks.html", "html/plots.html", "html/usage.html", "html/lineage.html"))
	for _, name := range []string{"signin", "runs", "compare", "sweeps", "sweep", "partly", "remove", "newrun", "bundle", "files", "worksheet", "worksheets", "edit", "settings", "people", "queues", "problem"} {
		p.templates[name] = template.Must(template.Must(base.Clone()).ParseFS(htmlFiles, "html/"+name+".html"))
	}
	return p
}

// Handle adds the pages to the routes of mux, which also serves the REST API.
func (p *Pages) Handle(mux *http.ServeMux) {
	p.api = mux
	compress := compressing()
	for pattern, serve := range map[string]func(*visit) error{
		"GET /{$}":                            p.home,
		"GET /signin":                         p.signInPage,
		"GET /account/login":                  p.signInPage, // CodaLab's address for it
		"POST /signin":                        p.signIn,
		"POST /signout":                       p.signOut,
		"GET /runs":                           p.runs,
		"GET /runs/events":                    p.runEvents,
		"POST /runs/columns":                  p.chooseRunColumns,
		"POST /runs/actions":                  p.act,
		"GET /runs/new":                       p.newRun,
		"POST /runs/new":                      p.submit,
		"GET /compare":                        p.compareBundles,
		"GET /sweeps":                         p.sweeps,
		"GET /sweeps/{uuid}":                  p.sweep,
		"GET /sweeps/{uuid}/events":           p.sweepEvents,
		"POST /sweeps/{uuid}/columns":         p.chooseColumns,
		"GET /bundles/{uuid}":                 p.bundle,
		"GET /bundles/{uuid}/{$}":             p.bundle,
		"GET /bundles/{uuid}/files/{path...}": p.files,
		"GET /bundles/{uuid}/pdf/{path...}":   p.pdf,
		"GET /bundles/{uuid}/events":          p.bundleEvents,
		"GET /bundles/{uuid}/provenance.json": p.provenance,
		"GET /worksheets":                     p.worksheets,
		"GET /worksheets/{uuid}":              p.worksheet,
		"GET /worksheets/{uuid}/{$}":          p.worksheet,
		"GET /worksheets/{uuid}/export.zip":   p.export,
		"POST /worksheets":                    p.makeWorksheet,
		"GET /worksheets/{uuid}/edit":         p.editPage,
		"POST /worksheets/{uuid}/edit":        p.edit,
		"POST /worksheets/{uuid}/preview":     p.previewText,
		"GET /worksheets/{uuid}/settings":     p.settings,
		"POST /worksheets/{uuid}/settings":    p.change,
		"GET /queues":                         p.queues,
		"GET /people":                         p.people,
		"POST /people":                        p.changePeople,
	} {
		named := strings.HasPrefix(pattern, "GET /worksheets/{uuid}") || strings.HasPrefix(pattern, "GET /sweeps/{uuid}")
		handler := p.visited(serve, named)
		if !isStream(pattern) {
			handler = compress(handler)
		}
		mux.HandleFunc(pattern, handler)
	}
	mux.HandleFunc("GET /static/", compress(http.HandlerFunc(p.static.serve)))
}

// Missing answers a request for an address at which there is no page, with a status and a sentence.
func (p *Pages) Missing(w http.ResponseWriter, r *http.Request, status int, message string) {
	p.visited(func(v *visit) error { return p.show(v, status, "problem", http.StatusText(status), message) }, false)(w, r)
}

// Stop ends all streams, so that the HTTP server can shut down. It is called once.
func (p *Pages) Stop() { close(p.feed.stopped) }

// Changed tells the pages that a bundle has changed. It never waits.
func (p *Pages) Changed(ownerID, uuid string) { p.feed.changed(ownerID, uuid) }

// visit is a request for a page.
type visit struct {
	http.ResponseWriter
	*http.Request
	// api calls the server as the user of the request.
	api *client.Client
	// user has no name if nobody has signed in.
	user codalab.User
}

// guard sets the headers of each answer: a page runs no scripts but those of the server, loads nothing from elsewhere, and
// is in no other site's frame.
func guard(w http.ResponseWriter) {
	for name, value := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         "same-origin",
	} {
		w.Header().Set(name, value)
	}
}

// visited serves a page. A page of a worksheet may be asked for by its name.
func (p *Pages) visited(serve func(*visit) error, named bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		guard(w)
		v := &visit{ResponseWriter: w, Request: r}
		err, led := p.begin(r.Context(), v), false
		if err == nil && named {
			led, err = v.leadByName(r.Context())
		}
		if err == nil && !led {
			err = serve(v)
		}
		if err != nil {
			p.answerError(r.Context(), v, err)
		}
	}
}

// begin finds out who visits.
func (p *Pages) begin(ctx context.Context, v *visit) (err error) {
	v.api, err = selfcall.Transport{Handler: p.api, From: v.Request, Log: p.config.Log}.Client()
	if err != nil || !rest.HasCookie(v.Request) {
		return err
	}
	v.user, err = v.api.User(ctx)
	if isStatus(err, http.StatusUnauthorized) {
		err = nil // the session has ended
	}
	return err
}

// page has the contents of base.html.
type page struct {
	Title string
	User  string
	// Root is set for the root user.
	Root bool
	// Here is the page's own address, to which a sign-in comes back.
	Here string
	// Body is for the page's own template.
	Body any
}

// show answers with a page, whose template has this name.
func (p *Pages) show(v *visit, status int, name, title string, body any) error {
	return p.write(v, status, name, page{Title: title, User: v.user.UserName, Root: v.isRoot(), Here: v.URL.RequestURI(), Body: body})
}

func (p *Pages) write(v *visit, status int, name string, data page) error {
	var text bytes.Buffer
	if err := p.templates[name].ExecuteTemplate(&text, "base.html", data); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	v.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.Header().Set("Cache-Control", "no-store")
	v.Header().Add("Vary", "Cookie")
	v.WriteHeader(status)
	_, _ = text.WriteTo(v.ResponseWriter) // fails if the client has gone
	return nil
}

// Header returns the answer's header; the request has one, too.
func (v *visit) Header() http.Header { return v.ResponseWriter.Header() }

// answerError shows why a page cannot be shown. Who has not signed in is asked to, where that may help.
func (p *Pages) answerError(ctx context.Context, v *visit, err error) {
	status, message := http.StatusInternalServerError, "The server failed. Its operator can find the reason in the log."
	if no, ok := errors.AsType[*codalab.Error](err); ok && no.Status >= http.StatusBadRequest {
		status, message = no.Status, no.Message
	}
	if no, ok := errors.AsType[*rest.RefusalError](err); ok {
		status, message = no.Status, no.Message
	}
	heading := http.StatusText(status)
	if isAway(err) {
		status = http.StatusServiceUnavailable
		heading, message = firstSentence(message)
	}
	if status == http.StatusInternalServerError {
		failures.Log(ctx, p.config.Log, v.Method+" "+v.URL.Path, err)
	}
	missing := status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound
	if missing && v.user.UserName == "" && v.Method == http.MethodGet {
		message = "Sign in to see this page, if you may see it."
	}
	if again := p.show(v, status, "problem", heading, message); again != nil {
		failures.Log(ctx, p.config.Log, v.Method+" "+v.URL.Path, again)
	}
}

// firstSentence returns the first sentence of a message for a heading, and the others.
func firstSentence(message string) (first, others string) {
	first, others, _ = strings.Cut(message, ". ")
	return strings.TrimSuffix(first, "."), cmp.Or(others, "Try it again later.")
}

// functions are those that templates call.
func functions() template.FuncMap {
	return template.FuncMap{
		"size":   codalab.FormatSize,
		"number": number,
		"join": func(lines []string) string {
			for i := range lines {
				lines[i] = strings.TrimSuffix(lines[i], "\n")
			}
			return strings.Join(lines, "\n")
		},
		"shorten": preview.Shortened,
		// cl is a line of cl with these words.
		"cl":  func(words ...string) string { return codalab.JoinWords(append([]string{"cl"}, words...)) },
		"utc": utc,
		// token is another one for each form.
		"token": codalab.NewUUID,
	}
}

// utc is a time for people; empty for none.
func utc(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return codalab.FormatTime(t, time.UTC)
}
