package signin

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// accountSite has SignIns with a store, whose letters nobody sends.
type accountSite struct {
	*SignIns
	mux *http.ServeMux
	log bytes.Buffer
	// from is the address of clients.
	from string
}

func newAccountSite(t *testing.T) *accountSite {
	t.Helper()
	data, err := store.OpenDatabase(t.Context(), t.TempDir(), testenv.ServerDatabase(t))
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, data.Close()) })
	a := &accountSite{mux: http.NewServeMux(), from: "192.0.2.1"}
	a.SignIns = New(Config{
		Log: slog.New(slog.NewTextHandler(&a.log, nil)), Now: time.Now, Store: data, Cost: PasswordCost{Passes: 1, KiB: 8},
		Address: func(*http.Request) string { return a.from }, Encrypted: func(*http.Request) bool { return false }, Count: func(string) {},
		Mail: mail.Options{Server: "127.0.0.1:1", From: "c@example.org"}, PublicURL: "https://codalab.example.org", SignUp: SignUp{Open: true},
	})
	for _, one := range a.PageCalls() {
		method, path, _ := strings.Cut(one.Pattern, " ")
		a.mux.HandleFunc(method+" /rest"+path, one.Answer)
	}
	return a
}

func formRequest(fields url.Values) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(fields.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// written are the mails of the next letter.
func (a *accountSite) written(t *testing.T) []mail.Mail {
	t.Helper()
	<-a.places
	mails, err := (<-a.letters)(t.Context())
	testenv.Must(t, err)
	return mails
}

// confirmed reports whether the code in a mail is valid.
func (a *accountSite) confirmed(t *testing.T, m mail.Mail) bool {
	t.Helper()
	_, code, _ := strings.Cut(m.Text, "/rest/account/verify/")
	_, err := a.config.Store.Confirmation(t.Context(), hashCode(code[:29]), time.Now())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// A link that was mailed before goes on to be valid, and a person may try again.
func TestNothingIsStoredOfALetterThatCannotWait(t *testing.T) {
	t.Parallel()
	a := newAccountSite(t)
	u := store.User{ID: "0x" + strings.Repeat("a", 32), Name: "alice"}
	testenv.Must(t, a.config.Store.AddUser(t.Context(), u))
	change := func(email string) error {
		return a.askChange(httptest.NewRecorder(), formRequest(url.Values{"email": {email}}), u)
	}
	const phrase = "drei kleine Fische"
	signUp := func() error {
		form := url.Values{"username": {"zoe"}, "email": {"zoe@example.org"}, "password": {phrase}, "confirm_password": {phrase}}
		return a.askSignUp(httptest.NewRecorder(), formRequest(form))
	}
	testenv.Must(t, change("first@example.org"))
	first := a.written(t)[0]
	for range mostLetters {
		testenv.Must(t, a.post(t.Context(), func(context.Context) error { return nil }, nil))
	}
	for what, err := range map[string]error{"change": change("second@example.org"), "sign-up": signUp()} {
		if !rest.HasStatus(err, http.StatusServiceUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !a.confirmed(t, first) {
		t.Error("the first link is not valid any more")
	}
	for range mostLetters {
		<-a.places
		<-a.letters
	}
	testenv.Must(t, signUp())
	if m := a.written(t)[0]; m.To != "zoe@example.org" || !a.confirmed(t, m) {
		t.Errorf("%+v", m)
	}
}

// Letters that wait, and gates, keep parts of forms and not the forms.
//
//nolint:paralleltest // it measures the memory of the process
func TestFormsAreNotKeptInMemory(t *testing.T) {
	a := newAccountSite(t)
	heap := func() int {
		runtime.GC()
		runtime.GC() // of what finalizers held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	for i := range mostLetters {
		a.from = "198.51." + strconv.Itoa(i/200) + "." + strconv.Itoa(i%200)
		email := "u" + strconv.Itoa(i) + "@example.org"
		// As a browser sends it: the field is a part of the body, and not decoded.
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("email="+email+"&pad="+strings.Repeat("p", 8000)))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		testenv.Must(t, a.postReset(httptest.NewRecorder(), r))
	}
	if each := (heap() - before) / mostLetters; each > 4000 {
		t.Errorf("each form takes %d bytes", each)
	}
	large := formRequest(url.Values{"email": {"ann@example.org"}, "pad": {strings.Repeat("p", 8<<10)}})
	if err := a.postReset(httptest.NewRecorder(), large); !rest.HasStatus(err, http.StatusBadRequest) {
		t.Errorf("a large form: %v", err)
	}
	runtime.KeepAlive(a)
}

// Whoever reads the log could use a code of which the server has not learned that it was used.
func TestLogHasNoCodesOfLinks(t *testing.T) {
	t.Parallel()
	a := newAccountSite(t)
	testenv.Must(t, a.config.Store.Close())
	for _, path := range []string{"/rest/account/verify/", "/rest/account/reset/verify/"} {
		code, _ := NewResetCode()
		w := httptest.NewRecorder()
		a.mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path+code, nil))
		if w.Code != http.StatusInternalServerError && w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if text := a.log.String(); strings.Contains(text, code) || !strings.Contains(text, "GET "+path+"{") {
			t.Errorf("%s: the log has %s", path, text)
		}
	}
}
