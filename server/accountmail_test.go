package server_test

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/smtptest"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/signin"
	"github.com/cl-slurm/cl-slurm/server/store"
)

const publicURL = "https://codalab.example.org"

// newAccountSite is a site that mails people about their accounts. later moves its clock.
func newAccountSite(t *testing.T, change ...func(*server.Config)) (s *site, post *smtptest.Server, later func(time.Duration)) {
	t.Helper()
	var ahead atomic.Int64
	s, post = newMailSite(t, append([]func(*server.Config){func(c *server.Config) {
		c.PublicURL = publicURL
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		c.SignUp = signin.SignUp{Open: true, TimeQuota: 1, DiskQuota: 2, ParallelRunQuota: 3}
	}}, change...)...)
	return s, post, func(d time.Duration) { ahead.Add(int64(d)) }
}

// linked is the path of the link in a mail. Links begin with the public address, whatever host a request names.
func linked(t *testing.T, m smtptest.Mail) string {
	t.Helper()
	found := regexp.MustCompile(`\n  ` + regexp.QuoteMeta(publicURL) + `(/rest/account/(?:verify|reset/verify)/([A-Z0-9-]+))\n`).FindStringSubmatch(m.Text)
	if found == nil || strings.Contains(m.Text, "evil") || len(m.To) != 1 {
		t.Fatalf("the mail is %+v", m)
	}
	return found[1]
}

func codeOf(path string) string { return path[strings.LastIndex(path, "/")+1:] }

// says fails unless the page has a status and a text, and tells its address to nobody.
func (r browserReply) says(t *testing.T, status int, text string) {
	t.Helper()
	if r.status != status || !strings.Contains(r.body, text) {
		t.Errorf("%d %s, want %d %q", r.status, r.body, status, text)
	}
	if strings.HasPrefix(r.header.Get("Content-Type"), "text/html") && (r.header.Get("Referrer-Policy") != "strict-origin" || r.header.Get("Cache-Control") != "no-store") {
		t.Errorf("the headers are %v", r.header)
	}
}

const phrase = "drei kleine Fische"

func TestForgottenPasswordIsSetByALinkInAMail(t *testing.T) {
	t.Parallel()
	s, post, later := newAccountSite(t)
	s.address("root", "root@example.org")
	ask := func(email string) browserReply {
		return s.form(server.ResetPath, url.Values{"email": {email}}, http.Header{"X-Forwarded-Host": {"evil.example"}})
	}
	same := ask("nobody@example.org")
	for _, email := range []string{"root@example.org", "ALICE@example.org"} {
		if r := ask(email); r.status != http.StatusOK || r.body != same.body {
			t.Errorf("%s: %d %s", email, r.status, r.body)
		}
	}
	ask("alice, bob@example.org").says(t, http.StatusBadRequest, "This is no e-mail address.")
	m := post.Await(1)
	if m.To[0] != "alice@example.org" { // the stored one; and nobody else gets a mail
		t.Errorf("the mail is to %v", m.To)
	}
	path := linked(t, m)
	for range 2 { // a look changes nothing
		s.form(path, nil, nil).says(t, http.StatusOK, `value="`+codeOf(path)+`"`)
	}
	finalize := func(code, again string) browserReply {
		return s.form(server.ResetPath+"/finalize", url.Values{"code": {code}, "password": {phrase}, "confirm_password": {again}}, nil)
	}
	finalize(codeOf(path), "x").says(t, http.StatusBadRequest, `value="`+codeOf(path)+`"`)
	finalize(codeOf(path), phrase).says(t, http.StatusOK, "The password is changed.")
	finalize(codeOf(path), phrase).says(t, http.StatusForbidden, "This code is not valid")
	s.form(path, nil, nil).says(t, http.StatusForbidden, "Ask for another one.")
	s.get("alice", "/user").is(http.StatusUnauthorized)
	s.signIn(ourProgram, "192.0.2.1", passwordForm("alice", phrase)).ok()

	ask("alice@example.org").says(t, http.StatusOK, "on its way")
	path = linked(t, post.Await(2))
	later(time.Hour)
	finalize(codeOf(path), phrase).says(t, http.StatusForbidden, "is older than an hour")
}

// A user without a password was locked by an import. One who signs in by a provider may have been locked out there. Worker accounts
// are the operator's.
func TestResetByMailOpensNoAccountOfOthers(t *testing.T) {
	t.Parallel()
	s, post, _ := newAccountSite(t)
	locked := store.User{ID: "0x" + strings.Repeat("d", 32), Name: "dora"}
	must(t, s.store.AddUser(t.Context(), locked))
	erin := userNamed("erin")
	must(t, s.store.AddUser(t.Context(), erin))
	must(t, s.store.SetScopes(t.Context(), erin.ID, []store.Scope{{}}))
	must(t, s.store.Link(t.Context(), store.Identity{Issuer: "https://login.example.org", Subject: "1", UserID: userNamed("alice").ID}))
	s.address("dora", "dora@example.org")
	s.address("erin", "erin@example.org")
	for _, name := range []string{"dora", "erin", "alice", "bob"} {
		s.form(server.ResetPath, url.Values{"email": {name + "@example.org"}}, nil).says(t, http.StatusOK, "on its way")
	}
	if m := post.Await(1); m.To[0] != "bob@example.org" {
		t.Errorf("the first mail is %+v", m)
	}
}

// The operator's change of an address is the last word: what was mailed before it is good for nothing.
func TestOperatorsChangeOfAnAddressEndsWhatWasMailed(t *testing.T) {
	t.Parallel()
	s, post, _ := newAccountSite(t)
	cookies := s.signInBrowser("alice").cookies
	s.form("/rest/account/changeemail", url.Values{"email": {"new@example.org"}}, nil, cookies...).says(t, http.StatusOK, "on its way")
	change := linked(t, post.Await(1))
	post.Await(2) // tells the old address
	s.form(server.ResetPath, url.Values{"email": {"alice@example.org"}}, nil).says(t, http.StatusOK, "on its way")
	reset := linked(t, post.Await(3))
	edit := map[string]any{"type": "users", "id": userNamed("alice").ID, "attributes": map[string]any{"email": "moved@example.org"}}
	s.call("root", http.MethodPatch, "/users", map[string]any{"data": []any{edit}}).ok()
	s.form(server.ResetPath+"/finalize", url.Values{"code": {codeOf(reset)}, "password": {phrase}, "confirm_password": {phrase}}, nil).says(t, http.StatusForbidden, "This code is not valid")
	s.form("/rest/account/verify", url.Values{"code": {codeOf(change)}, "password": {"alice"}}, nil).says(t, http.StatusForbidden, "This link is not valid")
	if u, _ := s.store.User(t.Context(), "alice"); u.Email != "moved@example.org" {
		t.Errorf("the address is %s", u.Email)
	}
}

// Anybody who knows an address can ask for mails to it. The operator's code goes on to be good.
func TestMailsThatAStrangerAsksForLeaveTheOperatorsCode(t *testing.T) {
	t.Parallel()
	s, post, _ := newAccountSite(t)
	code, hash := server.NewResetCode()
	must(t, s.store.AddReset(t.Context(), userNamed("alice").ID, hash, time.Now().Add(server.ResetLife)))
	s.form(server.ResetPath, url.Values{"email": {"alice@example.org"}}, nil).says(t, http.StatusOK, "on its way")
	mailed := codeOf(linked(t, post.Await(1)))
	finalize := func(code string) browserReply {
		return s.form(server.ResetPath+"/finalize", url.Values{"code": {code}, "password": {phrase}, "confirm_password": {phrase}}, nil)
	}
	finalize(code).says(t, http.StatusOK, "The password is changed.")
	finalize(mailed).says(t, http.StatusForbidden, "This code is not valid")
}

func TestMailsThatPeopleAskForAreBounded(t *testing.T) {
	t.Parallel()
	s, post, later := newAccountSite(t)
	ask := func() browserReply {
		return s.form(server.ResetPath, url.Values{"email": {"alice@example.org"}}, nil)
	}
	for range 3 {
		ask().says(t, http.StatusOK, "on its way")
	}
	refused := ask()
	refused.says(t, http.StatusTooManyRequests, "Too many mails. Try again in")
	if refused.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	later(20 * time.Minute)
	ask().says(t, http.StatusOK, "on its way")
	post.Await(4)
}

func TestOtherSitesSendNoFormsAboutAccounts(t *testing.T) {
	t.Parallel()
	s, _, _ := newAccountSite(t)
	cookies := s.signInBrowser("alice").cookies
	for _, path := range []string{"/reset", "/reset/finalize", "/signup", "/verify", "/changeemail"} {
		r := s.form("/rest/account"+path, url.Values{"email": {"eve@example.org"}}, http.Header{"Sec-Fetch-Site": {"cross-site"}}, cookies...)
		r.says(t, http.StatusForbidden, "Another site has sent this request.")
	}
}

// Over plain HTTP a browser tells the origin of a form by the header Origin alone, and that is null where the policy of the page is
// no-referrer (https://fetch.spec.whatwg.org/#append-a-request-origin-header).
func TestFormsOfPagesAreTakenOverPlainHTTP(t *testing.T) {
	t.Parallel()
	s, _, _ := newAccountSite(t)
	cookies := s.signInBrowser("alice").cookies
	for _, page := range []string{"/signin", server.ResetPath, "/rest/account/changeemail", "/rest/account/signup"} {
		own := map[string]string{"strict-origin": "http://example.com", "same-origin": "http://example.com"}[s.form(page, nil, nil, cookies...).header.Get("Referrer-Policy")]
		for origin, taken := range map[string]bool{cmp.Or(own, "null"): true, "http://evil.example": false} {
			r := s.form(page, url.Values{"email": {"x"}}, http.Header{"Sec-Fetch-Site": nil, "Origin": {origin}}, cookies...)
			if strings.Contains(r.body, "Another site has sent this request.") == taken {
				t.Errorf("%s from %s: %d %s", page, origin, r.status, r.body)
			}
		}
	}
}

func TestAddressChangesWhenItIsConfirmedWithThePassword(t *testing.T) {
	t.Parallel()
	s, post, later := newAccountSite(t)
	change := func(email string, cookies ...*http.Cookie) browserReply {
		return s.form("/rest/account/changeemail", url.Values{"email": {email}}, http.Header{"X-Forwarded-Host": {"evil.example"}}, cookies...)
	}
	change("new@example.org").says(t, http.StatusUnauthorized, "Sign in first.")
	cookies := s.signInBrowser("alice").cookies
	for _, page := range []string{"changeemail", "resend"} {
		s.form("/rest/account/"+page, nil, nil, cookies...).says(t, http.StatusOK, "The address of alice is alice@example.org.")
	}
	change("alice@example.org", cookies...).says(t, http.StatusBadRequest, "is alice@example.org already")
	change("new", cookies...).says(t, http.StatusBadRequest, "This is no e-mail address.")
	change("bob@example.org", cookies...).says(t, http.StatusOK, "on its way") // whether it is somebody's is told to its owner alone
	taken := linked(t, post.Await(1))
	confirm := func(path, password string) browserReply {
		return s.form("/rest/account/verify", url.Values{"code": {codeOf(path)}, "password": {password}}, nil)
	}
	confirm(taken, "alice").says(t, http.StatusConflict, "Another user has this address")
	post.Await(2)

	change("new@example.org", cookies...).says(t, http.StatusOK, "on its way")
	path := linked(t, post.Await(3))
	told := post.Await(4)
	if told.To[0] != "alice@example.org" || !strings.Contains(told.Text, "another e-mail address: new@example.org") {
		t.Errorf("the old address is told %+v", told)
	}
	confirm(taken, "alice").says(t, http.StatusForbidden, "This link is not valid") // there was another one since
	s.form(path, nil, nil).says(t, http.StatusOK, "new@example.org becomes the address of alice.")
	confirm(path, "bob").says(t, http.StatusUnauthorized, "The password is wrong.")
	if u, _ := s.store.User(t.Context(), "alice"); u.Email != "alice@example.org" {
		t.Errorf("before it is confirmed, the address is %s", u.Email)
	}
	confirm(path, "alice").says(t, http.StatusOK, "The address is confirmed.")
	confirm(path, "alice").says(t, http.StatusForbidden, "This link is not valid")
	if u, _ := s.store.User(t.Context(), "alice"); u.Email != "new@example.org" {
		t.Errorf("the address is %s", u.Email)
	}

	change("late@example.org", cookies...).says(t, http.StatusOK, "on its way")
	path = linked(t, post.Await(5))
	later(3 * 24 * time.Hour)
	confirm(path, "alice").says(t, http.StatusForbidden, "is too old")
}

// signUp sends the form of CodaLab's page (frontend/src/components/SignUp.js), with fields changed.
func (s *site) signUp(change map[string]string) browserReply {
	s.t.Helper()
	form := url.Values{
		"username": {"ann"}, "email": {"ann@example.org"}, "first_name": {"Ann"}, "last_name": {"Lee"}, "affiliation": {"Lab"},
		"password": {phrase}, "confirm_password": {phrase}, "token": {"captcha"},
	}
	for field, value := range change {
		form.Set(field, value)
	}
	return s.form("/rest/account/signup", form, http.Header{"X-Forwarded-Host": {"evil.example"}})
}

func TestPeopleSignUpAndConfirmTheirAddress(t *testing.T) {
	t.Parallel()
	s, post, later := newAccountSite(t, func(c *server.Config) { c.SignUp.Domains = []string{"Example.org"} })
	s.form("/rest/account/signup", nil, nil).says(t, http.StatusOK, "User name")
	if r := s.form("/signin", nil, nil); !strings.Contains(r.body, `<a href="/rest/account/signup">`) || !strings.Contains(r.body, "Forgotten password?") {
		t.Errorf("the page says %s", r.body)
	}
	must(t, s.store.AddUser(t.Context(), store.User{ID: "0x" + strings.Repeat("f", 32), Name: "fred"}))
	_, err := s.store.DeleteUser(t.Context(), "0x"+strings.Repeat("f", 32))
	must(t, err)
	for says, change := range map[string]map[string]string{
		"name ALICE is already taken":        {"username": "ALICE"},
		"name fred is already taken":         {"username": "fred", "email": "fred@example.org"}, // a removed user's
		"User name characters must be":       {"username": "a b"},
		"looks like the site":                {"username": "Admin"},
		"at least 10 characters":             {"password": "x", "confirm_password": "x"},
		"The two passwords differ":           {"confirm_password": "x"},
		"This is no e-mail address":          {"email": "ann"},
		"Only addresses of Example.org may":  {"email": "ann@sub.example.org"},
		"longer than 255 bytes":              {"last_name": strings.Repeat("x", 300)},
		"A name may have 255 bytes, not 300": {"username": strings.Repeat("x", 300)},
	} {
		if r := s.signUp(change); r.status < 400 || !strings.Contains(r.body, says) {
			t.Errorf("%v: %d %s", change, r.status, r.body)
		}
	}
	back := s.signUp(map[string]string{"username": "alice", "error_uri": "/account/signup", "success_uri": "/account/signup/success"})
	if to := back.header.Get("Location"); back.status != http.StatusSeeOther || !strings.HasPrefix(to, "/account/signup?") || !strings.Contains(to, "first_name=Ann") || strings.Contains(to, "Fische") {
		t.Errorf("%d to %q", back.status, to)
	}
	done := s.signUp(map[string]string{"success_uri": "/account/signup/success", "error_uri": "/account/signup"})
	if to := done.header.Get("Location"); to != "/account/signup/success?email=ann%40example.org" {
		t.Errorf("%d to %q", done.status, to)
	}
	path := linked(t, post.Await(1))
	signIn := func() answer { return s.signIn(ourProgram, "192.0.2.1", passwordForm("ann", phrase)) }
	signIn().is(http.StatusUnauthorized)
	confirm := func(path, password string) browserReply {
		return s.form("/rest/account/verify", url.Values{"code": {codeOf(path)}, "password": {password}}, nil)
	}
	s.form(path, nil, nil).says(t, http.StatusOK, "ann@example.org becomes the address of ann.")
	confirm(path, "another phrase").says(t, http.StatusUnauthorized, "The password is wrong.") // who has only the mail
	signIn().is(http.StatusUnauthorized)
	confirm(path, phrase).says(t, http.StatusOK, "The address is confirmed.")
	confirm(path, phrase).says(t, http.StatusForbidden, "This link is not valid")
	s.tokens["ann"] = signIn().ok().text("access_token")
	u, err := s.store.User(t.Context(), "ann")
	must(t, err)
	if u.Email != "ann@example.org" || u.LastName != "Lee" || u.Affiliation != "Lab" || u.TimeQuota != 1 || u.DiskQuota != 2 || u.ParallelRunQuota != 3 || u.Root() || u.IsWorker {
		t.Errorf("%+v", u)
	}

	// A name that somebody else takes first, an address that a user has, and a link that is too old.
	s.signUp(map[string]string{"username": "zoe", "email": "zoe@example.org"}).says(t, http.StatusOK, "on its way to zoe@example.org")
	first := linked(t, post.Await(2))
	s.signUp(map[string]string{"username": "zoe", "email": "eve@example.org"}).says(t, http.StatusOK, "on its way to eve@example.org")
	second := linked(t, post.Await(3))
	s.signUp(map[string]string{"username": "ann2"}).says(t, http.StatusOK, "on its way to ann@example.org")
	third := linked(t, post.Await(4))
	s.signUp(map[string]string{"username": "late", "email": "late@example.org"}).says(t, http.StatusOK, "on its way")
	late := linked(t, post.Await(5))
	if text := post.Mails()[4].Text; !strings.Contains(text, "within a day") {
		t.Errorf("the mail says %s", text)
	}
	confirm(first, phrase).says(t, http.StatusOK, "The address is confirmed.")
	confirm(second, phrase).says(t, http.StatusConflict, "Another user has this address or name.")
	confirm(third, phrase).says(t, http.StatusConflict, "Another user has this address or name.")
	later(24 * time.Hour)
	confirm(late, phrase).says(t, http.StatusForbidden, "is too old")
}

// A person whose name is taken tries others, and no mail is sent for that.
func TestTakenNamesUseUpNoMails(t *testing.T) {
	t.Parallel()
	s, post, _ := newAccountSite(t)
	for _, name := range []string{"alice", "bob", "Alice", "BOB", "aLICE"} {
		if r := s.signUp(map[string]string{"username": name}); r.status != http.StatusBadRequest || !strings.Contains(r.body, "is already taken") {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	s.signUp(nil).says(t, http.StatusOK, "on its way")
	linked(t, post.Await(1))
	refused := 0
	for range 60 {
		if r := s.signUp(map[string]string{"username": "alice"}); r.status == http.StatusTooManyRequests {
			r.says(t, r.status, "Too many tries to sign up with this name, or from your network. Try again in")
			refused++
		}
	}
	if refused < 50 { // nobody goes through a list of names
		t.Errorf("%d tries of 60 were refused", refused)
	}
}

func TestRefusedFormKeepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	s, _, _ := newAccountSite(t)
	r := s.signUp(map[string]string{"username": "alice", "last_name": `"><b>Lee`})
	r.says(t, http.StatusBadRequest, "is already taken")
	for _, field := range []string{`name="username" value="alice"`, `name="email" type="email" value="ann@example.org"`, `name="first_name" value="Ann"`, `name="last_name" value="&#34;&gt;&lt;b&gt;Lee"`, `name="affiliation" value="Lab"`} {
		if !strings.Contains(r.body, field) {
			t.Errorf("%s is not in %s", field, r.body)
		}
	}
	if strings.Contains(r.body, phrase) {
		t.Errorf("the password is in %s", r.body)
	}
	s.form(server.ResetPath, url.Values{"email": {"ann at home"}}, nil).says(t, http.StatusBadRequest, `value="ann at home"`)
	s.form("/rest/account/changeemail", url.Values{"email": {"ann at home"}}, nil, s.signInBrowser("alice").cookies...).says(t, http.StatusBadRequest, `value="ann at home"`)
}

func TestDomainsOfSignUpsHoldAtTheConfirmationToo(t *testing.T) {
	t.Parallel()
	domains := []string{"example.org"}
	s, post, _ := newAccountSite(t, func(c *server.Config) { c.SignUp.Domains = domains })
	s.signUp(nil).says(t, http.StatusOK, "on its way")
	path := linked(t, post.Await(1))
	domains[0] = "example.com" // as by a restart
	s.form(path, nil, nil).says(t, http.StatusForbidden, "Only addresses of example.com may sign up.")
	s.form("/rest/account/verify", url.Values{"code": {codeOf(path)}, "password": {phrase}}, nil).says(t, http.StatusForbidden, "Only addresses of example.com may sign up.")
	if _, err := s.store.User(t.Context(), "ann"); err == nil {
		t.Error("the user was made")
	}
}

// Two people sign up with one name. One of them guesses the password of the other's account by a link of their own.
func TestGuessesOfASignUpDelayNoOtherOneOfTheName(t *testing.T) {
	t.Parallel()
	s, post, _ := newAccountSite(t, func(c *server.Config) { c.BehindProxy = true })
	s.signUp(map[string]string{"username": "zoe", "email": "zoe@example.org"})
	hers := codeOf(linked(t, post.Await(1)))
	s.signUp(map[string]string{"username": "zoe", "email": "eve@example.org"})
	others := codeOf(linked(t, post.Await(2)))
	confirm := func(code, password, from string) browserReply {
		return s.form("/rest/account/verify", url.Values{"code": {code}, "password": {password}}, http.Header{"X-Forwarded-For": {from}})
	}
	refused := 0
	for i := range 20 {
		if r := confirm(others, "wrong", "203.0.113."+strconv.Itoa(i)); r.status == http.StatusTooManyRequests {
			r.says(t, r.status, "Too many wrong passwords. Try again in")
			refused++
		}
	}
	if refused != 10 { // wherever the guesser is
		t.Errorf("%d guesses of 20 were refused", refused)
	}
	confirm(hers, phrase, "192.0.2.99").says(t, http.StatusOK, "The address is confirmed.")
}

func TestNobodySignsUpUnlessTheOperatorWantsThat(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*server.Config){
		"by default": func(c *server.Config) { c.SignUp = signin.SignUp{} },
		"no mail":    func(c *server.Config) { c.Mail.Server = "" },
		"no address": func(c *server.Config) { c.PublicURL = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(c *server.Config) {
				c.PublicURL, c.SignUp = publicURL, signin.SignUp{Open: true}
				c.Mail.Server, c.Mail.From = "127.0.0.1:1", "c@example.org"
				change(c)
			})
			if r := s.signUp(nil); r.status != http.StatusSeeOther || !strings.HasPrefix(r.header.Get("Location"), "/account/signup?error=The+operator") {
				t.Errorf("%d %v", r.status, r.header)
			}
			if r := s.form("/signin", nil, nil); strings.Contains(r.body, "Sign up") || strings.Contains(r.body, "Forgotten password?") != (name == "by default") {
				t.Errorf("the page says %s", r.body)
			}
		})
	}
}

func TestHelpReachesTheOperator(t *testing.T) {
	t.Parallel()
	s, post, _ := newAccountSite(t, func(c *server.Config) { c.HelpAddress = "help@example.org" })
	ask := func(message string) answer {
		return s.call("alice", "POST", "/help/", map[string]string{"message": message})
	}
	ask("My run waits.\r\nBcc: eve@example.org").is(http.StatusOK)
	m := post.Await(1)
	if m.To[0] != "help@example.org" || m.From != "codalab@example.org" || m.Header.Get("Reply-To") != "<alice@example.org>" || m.Header.Get("Bcc") != "" ||
		m.Header.Get("Subject") != "CodaLab: a message of alice" || !strings.Contains(m.Text, "My run waits.") || !strings.Contains(m.Text, "alice (alice@example.org) has sent this message") {
		t.Errorf("%+v", m)
	}
	ask(" ").is(http.StatusBadRequest)
	ask(strings.Repeat("x", 10_001)).is(http.StatusRequestEntityTooLarge)
	ask("2").is(http.StatusOK)
	post.Stop()
	ask("3").says(http.StatusServiceUnavailable, "Try again later.")
	ask("4").says(http.StatusTooManyRequests, "Too many mails.")
	without := newSite(t)
	without.call("alice", "POST", "/help/", map[string]string{"message": "x"}).says(http.StatusForbidden, "sends no mails")
}
