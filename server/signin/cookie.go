package signin

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// markCookie is CodaLab's own cookie (codalab/server/cookie.py: LoginCookie). Its web page looks whether it is there, for
// which scripts must be able to read it (frontend/src/CodalabApp.js: checkAuth). So it proves nothing here.
const markCookie = rest.PageCookie

// cookieLife is the life of a browser's session, which is not renewed (codalab/rest/account.py: do_login).
const cookieLife = 30 * 24 * time.Hour

// browserClient is the client of browsers' sessions.
const browserClient = "codalab_web_client"

// token returns the token of a request. A cookie, which a browser sends without being asked, is the proof of its user only
// in requests from this site's own pages.
func (s *SignIns) token(r *http.Request) (string, error) {
	if t := bearer(r); t != "" || r.Header.Get("Authorization") != "" {
		return t, nil
	}
	cookie, err := r.Cookie(rest.SessionCookieName(s.config.Encrypted(r)))
	if err != nil || cookie.Value == "" {
		return "", nil //nolint:nilerr // http.ErrNoCookie
	}
	// A command's own pages act on GET, too, and a link on another site sends the cookie with that.
	if from := r.Header.Get("Sec-Fetch-Site"); isNetcurl(r) && (from != "same-origin" && from != "none" || !rest.IsVisit(r)) {
		return "", nil
	}
	return cookie.Value, rest.CheckSite(r)
}

// isNetcurl reports whether a request is for a run's own pages.
func isNetcurl(r *http.Request) bool { return strings.Contains(r.URL.Path, "/netcurl/") }

// unmark takes its mark from a browser that is signed in no longer, as after the end of its session, so that CodaLab's web page
// offers to sign in (codalab/server/cookie.py: CookieAuthenticationPlugin). The other cookie proves nothing any more, and stays:
// it may be that of a new session, if the answer comes late. The mark goes nevertheless: a request from before the sign-in has
// the old mark, and a browser cannot be told to drop a cookie of one value alone. Then the page offers to sign in once more. A
// request for a run's own pages tells nothing, because the cookie may not count there.
func (s *SignIns) unmark(w http.ResponseWriter, r *http.Request) {
	if _, err := r.Cookie(markCookie); err != nil || r.Header.Get("Authorization") != "" || isNetcurl(r) {
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	http.SetCookie(w, s.mark(r, "", -1))
}

// SignInBrowser begins a session for a browser, and sets its cookies. It fails with a rest.RefusalError: 401 for a wrong
// name or password, 429 after too many failed sign-ins.
func (s *SignIns) SignInBrowser(w http.ResponseWriter, r *http.Request, name, password string) error {
	if err := rest.CheckSite(r); err != nil { // it signs the user in to the account of the site's author
		return err
	}
	in := try{name: name, password: password, address: s.config.Address(r)}
	c, err := s.check(r.Context(), in)
	if errors.Is(err, store.ErrNotFound) {
		return wrong()
	}
	if err != nil {
		return err
	}
	now := s.config.Now()
	value := newToken()
	expires := store.Time{Time: now.Add(cookieLife)}
	session := store.Session{
		ID: strings.ToLower(rand.Text()[:12]), UserID: c.user.ID, Client: browserClient, Program: program(r), Address: in.address,
	}
	_, err = s.config.Store.BeginSession(r.Context(), store.SignIn{
		Session: session, Checked: c.user.Password, Rehashed: c.rehashed, Marks: []string{networkMark(in.address)}, InUse: s.live.inUse(c.user.ID),
		// Nobody gets the refresh token.
		Grant: store.Grant{Access: hashToken(value), Refresh: hashToken(newToken()), AccessExpires: expires, RefreshExpires: expires},
	}, now)
	if errors.Is(err, store.ErrNotFound) {
		return wrong()
	}
	if err != nil {
		return err
	}
	s.setCookie(w, r, value, int(cookieLife/time.Second))
	return nil
}

func wrong() error { return rest.Refuse(http.StatusUnauthorized, "The name or the password is wrong.") }

// Login signs a browser in by the form of CodaLab's own web page (codalab/rest/account.py: do_login).
func (s *SignIns) Login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	if err := r.ParseForm(); err != nil {
		rest.AnswerError(s.config.Log, w, r, rest.Refuse(http.StatusBadRequest, "The form cannot be read."))
		return
	}
	next, retry := rest.LocalPath(r.PostForm.Get("success_uri")), rest.LocalPath(r.PostForm.Get("error_uri"))
	err := s.SignInBrowser(w, r, r.PostForm.Get("username"), r.PostForm.Get("password"))
	no, refused := errors.AsType[*rest.RefusalError](err)
	switch {
	case err == nil:
		rest.Go(w, r, next)
		return
	case !refused || no.Status != http.StatusUnauthorized && no.Status != http.StatusTooManyRequests:
		rest.AnswerError(s.config.Log, w, r, err)
		return
	}
	path, query, _ := strings.Cut(retry, "?")
	values, _ := url.ParseQuery(query) // what can be read of it
	values.Set("error", no.Message)
	values.Set("next", next)
	rest.Go(w, r, path+"?"+values.Encode())
}

// Logout ends the session of a browser (codalab/rest/account.py: do_logout).
func (s *SignIns) Logout(w http.ResponseWriter, r *http.Request) {
	err := rest.CheckVisit(r)
	if err == nil {
		err = s.SignOutBrowser(w, r)
	}
	if err != nil {
		rest.AnswerError(s.config.Log, w, r, err)
		return
	}
	rest.Go(w, r, r.URL.Query().Get("redirect_uri"))
}

// SignOutBrowser ends the session of a browser's cookie.
func (s *SignIns) SignOutBrowser(w http.ResponseWriter, r *http.Request) error {
	cookie, err := r.Cookie(rest.SessionCookieName(s.config.Encrypted(r)))
	if err != nil {
		return nil //nolint:nilerr // http.ErrNoCookie
	}
	s.setCookie(w, r, "", -1)
	return s.config.Store.DeleteGrant(r.Context(), hashToken(cookie.Value))
}

func (s *SignIns) setCookie(w http.ResponseWriter, r *http.Request, value string, seconds int) {
	w.Header().Set("Cache-Control", "no-store")
	secure := s.config.Encrypted(r)
	token := http.Cookie{Name: rest.SessionCookieName(secure), Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: secure} //nolint:gosec // without TLS there is no secure cookie
	http.SetCookie(w, &token)
	http.SetCookie(w, s.mark(r, "1", seconds))
}

// mark is the cookie that CodaLab's web page looks for.
func (s *SignIns) mark(r *http.Request, value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: markCookie, Value: value, Path: "/", MaxAge: seconds, SameSite: http.SameSiteLaxMode, Secure: s.config.Encrypted(r)} //nolint:gosec // it proves nothing
}
