package browsertest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/cl-slurm/cl-slurm/internal/smtptest"
)

const publicURL = "https://codalab.example"

// newMailSite is a site with ann that mails people about their accounts, and takes sign-ups. Its people come by plain HTTP, where
// a browser sends no Sec-Fetch-Site: it trusts the names of this machine alone without TLS.
func newMailSite(t *testing.T) (*site, *smtptest.Server) {
	t.Helper()
	post := smtptest.Start(t, smtptest.Options{})
	s := newSiteWith(t, []string{
		"--mail-server", post.Address, "--mail-tls", "none", "--mail-from", "codalab@example.org", "--public-url", publicURL, "--sign-up",
	}, "ann")
	s.address = strings.Replace(s.address, "127.0.0.1", plainHost, 1)
	return s, post
}

// linked is the path of the link in a mail.
func linked(t *testing.T, m smtptest.Mail) string {
	t.Helper()
	_, path, found := strings.Cut(m.Text, "\n  "+publicURL)
	path, _, _ = strings.Cut(path, "\n")
	if !found || !strings.HasPrefix(path, "/rest/account/") {
		t.Fatalf("the mail is %+v", m)
	}
	return path
}

// keepsItsAddress fails if the header Referer of a page could tell the code in its address.
func (p *person) keepsItsAddress() {
	p.t.Helper()
	if from := evaluate[string](p, `document.referrer`); strings.Contains(from, "/rest/account") {
		p.t.Errorf("the page before was %s", from)
	}
}

// passesAxe is passes, where axe-core is there.
func (p *person) passesAxe(axe, page string) {
	p.t.Helper()
	if axe != "" {
		p.passes(axe, page, desk)
	}
}

func TestForgottenPasswordIsSetByALinkInAMail(t *testing.T) {
	t.Parallel()
	s, post := newMailSite(t)
	set := exec.CommandContext(t.Context(), serverProgram.Path(t), "user", "email", "--data", filepath.Join(s.dir, "server"), "ann", "ann@example.org")
	if said, err := set.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", set, err, said)
	}
	axe, p := axeScript(t), s.visit(desk)
	p.goTo("/signin")
	p.clicks("Forgotten password?")
	p.sees("Your e-mail address")
	p.passesAxe(axe, "/rest/account/reset")
	p.types("input[name=email]", "ann@example.org")
	p.clicks("Send the link")
	p.sees("a mail with a link is on its way")
	p.goTo(linked(t, post.Await(1)))
	p.sees("New password again")
	p.passesAxe(axe, "/rest/account/reset/verify/…")
	p.types("input[name=password]", "x")
	p.types("input[name=confirm_password]", "y")
	p.clicks("Set the password")
	p.sees("The two passwords differ.")
	p.keepsItsAddress()
	const phrase = "drei kleine Fische"
	p.types("input[name=password]", phrase)
	p.types("input[name=confirm_password]", phrase)
	p.clicks("Set the password")
	p.sees("The password is changed.")
	p.passesAxe(axe, "/rest/account/reset/finalize")
	p.clicks("Sign in")
	p.types("input[name=name]", "ann")
	p.keepsItsAddress()
	p.types("input[name=password]", phrase)
	p.presses(kb.Enter)
	p.sees("ann Sign out", "Runs")
}

func TestPersonSignsUp(t *testing.T) {
	t.Parallel()
	s, post := newMailSite(t)
	axe, p := axeScript(t), s.visit(desk)
	p.goTo("/signin")
	p.clicks("Sign up")
	p.sees("User name")
	p.passesAxe(axe, "/rest/account/signup")
	p.types("input[name=username]", "ann")
	p.types("input[name=email]", "zoe@example.org")
	p.types("input[name=first_name]", "Zoe")
	types := func() {
		t.Helper()
		p.types("input[name=password]", password)
		p.types("input[name=confirm_password]", password)
		p.presses(kb.Enter)
	}
	types()
	p.sees("User name ann is already taken.")
	if name := evaluate[string](p, `document.querySelector("input[name=first_name]").value`); name != "Zoe" {
		t.Errorf("the first name is %q", name)
	}
	p.types("input[name=username]", "zoe")
	types()
	p.sees("A mail with a link is on its way to zoe@example.org.")
	p.goTo(linked(t, post.Await(1)))
	p.sees("zoe@example.org becomes the address of zoe.")
	p.passesAxe(axe, "/rest/account/verify/…")
	p.types("input[name=password]", "another phrase")
	p.clicks("Confirm")
	p.sees("The password is wrong.")
	p.keepsItsAddress()
	p.types("input[name=password]", password)
	p.clicks("Confirm")
	p.sees("The address is confirmed.")
	p.clicks("Sign in")
	p.types("input[name=name]", "zoe")
	p.types("input[name=password]", password)
	p.presses(kb.Enter)
	p.sees("zoe Sign out", "Runs")
	p.goTo("/rest/account/changeemail")
	p.sees("The address of zoe is zoe@example.org.")
	p.passesAxe(axe, "/rest/account/changeemail")
}
