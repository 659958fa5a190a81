package sso

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Path is that of the page on which people type the short code.
const Path = "/rest/sso"

// Config has what an SSO needs. All fields are required.
type Config struct {
	Options

	Log   *slog.Logger
	Now   func() time.Time
	Store *store.Store
	// Address returns the address of a request's client.
	Address func(*http.Request) string
}

// SSO signs users in by a provider.
type SSO struct {
	config   Config
	provider provider
	devices  devices
	// template is that of all pages.
	template *template.Template

	mu sync.Mutex
	// flows are the sign-ins at the provider, by their state.
	flows map[string]flow
	// wrong counts the wrong short codes that were typed lately, by address.
	wrong map[string]int
	since time.Time
}

// flow is one sign-in at the provider.
type flow struct {
	secrets

	short   string // the program's
	browser string // the hash of the browser's cookie
	begun   time.Time
}

// New returns an SSO; nil if there is no provider.
func New(c Config) *SSO {
	if c.Issuer == "" {
		return nil
	}
	return &SSO{
		config: c, provider: provider{Options: c.Options, now: c.Now, http: &http.Client{Timeout: within}},
		devices: devices{interval: cmp.Or(c.Interval, 5*time.Second), byLong: map[string]*device{}},
		flows:   map[string]flow{}, wrong: map[string]int{}, template: template.Must(template.New("page").Parse(pageHTML)),
	}
}

// Handle adds the pages, and the call by which a program begins.
func (s *SSO) Handle(mux *http.ServeMux) {
	mux.HandleFunc("POST /rest/oauth2/device_authorization", s.authorizeDevice)
	mux.HandleFunc("GET "+Path, s.showForm)
	mux.HandleFunc("POST "+Path, s.readForm)
	mux.HandleFunc("GET "+callbackPath, s.comeBack)
}

// Redeem returns the id of the user who has signed in for the program with a long code, once. It fails with ErrPending,
// ErrSlow, ErrDenied or ErrExpired.
func (s *SSO) Redeem(long, client string) (userID string, err error) {
	return s.devices.redeem(long, client, s.config.Now())
}

// authorizeDevice begins the sign-in of a program (RFC 8628, section 3.1).
func (s *SSO) authorizeDevice(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	client, _, _ := r.BasicAuth()
	long, short, err := s.devices.begin(client, s.config.Address(r), s.config.Now())
	if err != nil {
		rest.AnswerError(s.config.Log, w, r, rest.Refuse(http.StatusTooManyRequests, "Too many sign-ins are under way. Try again in some minutes."))
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	rest.AnswerError(s.config.Log, w, r, rest.WriteJSON(w, http.StatusOK, codalab.DeviceAnswer{
		DeviceCode: long, UserCode: spellShort(short), Page: s.provider.URL + Path,
		Seconds: deviceLife.Seconds(), Interval: s.devices.interval.Seconds(),
	}))
}

// showForm shows the page for a short code.
func (s *SSO) showForm(w http.ResponseWriter, r *http.Request) {
	s.show(w, http.StatusOK, page{Ask: true, Mark: mark(s.browser(w, r))})
}

// readForm reads the page's form: first the short code alone, and then the person's answer to the question whether to go on.
func (s *SSO) readForm(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	browser := cookieOf(r, s.cookie())
	if err := r.ParseForm(); err != nil || browser == "" || !same(r.PostForm.Get("mark"), mark(browser)) {
		s.show(w, http.StatusForbidden, page{Problem: "This form is of another page, or your browser keeps no cookies. Open the page again."})
		return
	}
	short, now := readShort(r.PostForm.Get("code")), s.config.Now()
	one, ok := s.devices.find(short, now)
	switch {
	case s.guesses(s.config.Address(r), !ok):
		s.show(w, http.StatusTooManyRequests, page{Problem: "Too many wrong codes. Try again in ten minutes."})
	case !ok:
		s.show(w, http.StatusNotFound, page{Ask: true, Mark: mark(browser), Problem: "There is no sign-in with this code, or its time is over. Run cl login --sso again."})
	case r.PostForm.Get("answer") == "deny":
		s.devices.settle(short, "", now)
		s.show(w, http.StatusOK, page{Done: "The program was not signed in."})
	case r.PostForm.Get("answer") == "allow":
		s.send(w, r, short, browser)
	default:
		s.show(w, http.StatusOK, page{
			Mark: mark(browser), Code: spellShort(short), Address: one.address, Provider: s.provider.Issuer,
			Minutes: int(now.Sub(one.begun).Minutes()),
		})
	}
}

// send sends a browser to the provider.
func (s *SSO) send(w http.ResponseWriter, r *http.Request, short, browser string) {
	one := flow{
		secrets: secrets{state: rand.Text(), nonce: rand.Text(), verifier: oauth2.GenerateVerifier()},
		short:   short, browser: hash(browser), begun: s.config.Now(),
	}
	to, err := s.provider.address(r.Context(), one.secrets)
	if err != nil {
		does := "does not answer"
		if _, silent := errors.AsType[*url.Error](err); !silent {
			does = "gives no usable answer; the server's log has the reason"
		}
		s.config.Log.LogAttrs(r.Context(), slog.LevelWarn, "the provider of sign-ins cannot be used", slog.String("error", err.Error()))
		s.show(w, http.StatusServiceUnavailable, page{Problem: "The sign-in service at " + s.provider.Issuer + " " + does + ". Try again later, or sign in with a password."})
		return
	}
	if !s.keep(one) {
		s.show(w, http.StatusTooManyRequests, page{Problem: "Too many sign-ins are under way. Try again in some minutes."})
		return
	}
	noStore(w)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// keep keeps a flow, and drops those whose time is over. It returns false if there are too many.
func (s *SSO) keep(one flow) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for state, old := range s.flows {
		if one.begun.Sub(old.begun).Abs() >= deviceLife {
			delete(s.flows, state)
		}
	}
	if len(s.flows) >= mostDevices {
		return false
	}
	s.flows[one.state] = one
	return true
}

// take returns the flow with a state, for the browser that has begun it, once.
func (s *SSO) take(state, browser string) (flow, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.flows[state]
	if !ok || browser == "" || !same(one.browser, hash(browser)) || s.config.Now().Sub(one.begun).Abs() >= deviceLife {
		return flow{}, false
	}
	delete(s.flows, state)
	return one, true
}

// comeBack reads the provider's answer, which a browser brings.
func (s *SSO) comeBack(w http.ResponseWriter, r *http.Request) {
	q, now := r.URL.Query(), s.config.Now()
	one, ok := s.take(q.Get("state"), cookieOf(r, s.cookie()))
	if _, waits := s.devices.find(one.short, now); !ok || !waits {
		s.show(w, http.StatusBadRequest, page{Problem: "This sign-in was begun in another browser, is over already, or took too long. Run cl login --sso again."})
		return
	}
	switch problem := q.Get("error"); {
	case problem == "access_denied":
		s.devices.settle(one.short, "", now)
		s.show(w, http.StatusOK, page{Done: "The program was not signed in."})
		return
	case problem != "" || q.Get("iss") != "" && q.Get("iss") != s.provider.Issuer: // RFC 9207
		s.refuse(w, r, fmt.Errorf("the provider answers: %.300q", problem+" "+q.Get("error_description")))
		return
	}
	who, err := s.provider.exchange(r.Context(), q.Get("code"), one.secrets)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	s.admit(w, r, one, who)
}

// admit signs the program in as the user that a person is.
func (s *SSO) admit(w http.ResponseWriter, r *http.Request, one flow, who person) {
	u, err := s.user(r.Context(), who)
	switch {
	case errors.Is(err, errUnknown):
		s.config.Log.LogAttrs(r.Context(), slog.LevelWarn, "sign-in refused: the person is no user here", slog.String("subject", who.Subject), slog.String("address", s.config.Address(r)))
		s.show(w, http.StatusForbidden, page{Problem: "You are no user here yet. Give your operator this line: cl-server user link YOUR-NAME --oidc-issuer " + s.provider.Issuer + " --oidc-subject " + who.Subject})
	case err != nil:
		s.refuse(w, r, err)
	case !s.devices.settle(one.short, u.ID, s.config.Now()):
		s.show(w, http.StatusBadRequest, page{Problem: "The sign-in took too long. Run cl login --sso again."})
	default:
		s.config.Log.LogAttrs(r.Context(), slog.LevelInfo, "signed in by the provider", slog.String("user", u.Name), slog.String("address", s.config.Address(r)))
		s.show(w, http.StatusOK, page{Done: "cl is signed in as " + u.Name + ". You may close this page."})
	}
}

// refuse shows that a sign-in has failed. The reason is in the log.
func (s *SSO) refuse(w http.ResponseWriter, r *http.Request, err error) {
	s.config.Log.LogAttrs(r.Context(), slog.LevelWarn, "sign-in by the provider failed", slog.String("error", err.Error()), slog.String("address", s.config.Address(r)))
	s.show(w, http.StatusBadGateway, page{Problem: "The sign-in at " + s.provider.Issuer + " failed; the server's log has the reason. Run cl login --sso again."})
}

// mostWrong bounds the wrong short codes that are typed from one address in ten minutes.
const mostWrong = 50

// guesses counts a wrong code, and reports whether there are too many from an address.
func (s *SSO) guesses(address string, wrong bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.config.Now(); now.Sub(s.since).Abs() >= deviceLife || len(s.wrong) > 100_000 {
		s.wrong, s.since = map[string]int{}, now
	}
	if wrong {
		s.wrong[address]++
	}
	return s.wrong[address] > mostWrong
}

// cookie is the name of the browser's cookie. With the prefix browsers take it from this host by https alone (RFC 6265bis,
// section 4.1.3.2).
func (s *SSO) cookie() string {
	if strings.HasPrefix(s.provider.URL, "https:") {
		return "__Host-cl-sso"
	}
	return "cl-sso"
}

func cookieOf(r *http.Request, name string) string {
	if c, err := r.Cookie(name); err == nil {
		return c.Value
	}
	return ""
}

// browser returns the value of the browser's cookie, and sets one if it has none.
func (s *SSO) browser(w http.ResponseWriter, r *http.Request) string {
	if have := cookieOf(r, s.cookie()); len(have) == len(rand.Text()) {
		return have
	}
	value := rand.Text()
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure unless the server is reached by http, on its own machine
		Name: s.cookie(), Value: value, Path: "/", MaxAge: int(time.Hour.Seconds()), HttpOnly: true,
		Secure: strings.HasPrefix(s.provider.URL, "https:"), SameSite: http.SameSiteLaxMode,
	})
	return value
}

// mark shows that a form comes from a page that this browser has got: another site knows neither the cookie nor the mark.
func mark(browser string) string { return hash("form " + browser) }

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
