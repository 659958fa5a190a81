package server_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/smtptest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// notice asks for a mail about bundles.
func notice(uuids ...string) map[string]any {
	return map[string]any{"data": []any{map[string]any{"type": "notices", "attributes": map[string]any{"bundle_uuids": uuids}}}}
}

// mailsBy lets a server send mails.
func mailsBy(s *smtptest.Server) func(*server.Config) {
	return func(c *server.Config) {
		c.Mail = mail.Options{Server: s.Address, TLS: mail.StartTLS, From: "codalab@example.org", Roots: s.Roots}
	}
}

// newMailSite is a site whose users have addresses, and its SMTP server.
func newMailSite(t *testing.T, change ...func(*server.Config)) (*site, *smtptest.Server) {
	t.Helper()
	post := smtptest.Start(t, smtptest.Options{StartTLS: true})
	s := newSite(t, append(change, mailsBy(post))...)
	for _, name := range []string{"alice", "bob"} {
		s.address(name, name+"@example.org")
	}
	return s, post
}

// address sets the address of a user, as only the operator can.
func (s *site) address(name, email string) {
	s.t.Helper()
	_, err := s.store.ChangeUser(s.t.Context(), userNamed(name).ID, func(u *store.User) error { u.Email = email; return nil })
	must(s.t, err)
}

// ends ends a bundle.
func (s *site) ends(uuid string, state codalab.State, why string) {
	s.t.Helper()
	_, err := s.store.Change(s.t.Context(), uuid, func(b *store.Bundle) error {
		b.State = state
		if why != "" {
			b.Metadata["failure_message"] = why
		}
		return nil
	})
	must(s.t, err)
}

func TestMailComesOnceWhenAllBundlesHaveEnded(t *testing.T) {
	t.Parallel()
	s, post := newMailSite(t)
	a, b := s.run("x", nil), s.run("x", nil)
	first := s.call("alice", "POST", "/notices", notice(a, b)).ok()
	if again := s.call("alice", "POST", "/notices", notice(b, a)).ok(); again.text("data", 0, "id") != first.text("data", 0, "id") {
		t.Errorf("a second wish for the same bundles is %s", again.body)
	}
	if to := first.text("data", 0, "attributes", "to"); to != "alice@example.org" {
		t.Errorf("to %q", to)
	}
	s.ends(a, codalab.StateReady, "")
	s.ends(b, codalab.StateFailed, "Exit code 1\r\nBcc: eve@example.org")
	m := post.Await(1)
	if len(m.To) != 1 || m.To[0] != "alice@example.org" || !m.Encrypted || m.Header.Get("Subject") != "CodaLab: 1 of 2 ready, 1 failed" || m.Header.Get("Bcc") != "" {
		t.Errorf("the mail is %+v", m)
	}
	lines := strings.Split(m.Text, "\n")
	if len(lines) < 5 || lines[2] != "failed  job("+b+"): Exit code 1  Bcc: eve@example.org" || lines[3] != "ready   job("+a+")" ||
		!strings.HasPrefix(lines[5], "You asked for this mail by cl wait --notify mail on ") {
		t.Errorf("the text is %q", m.Text)
	}
	// A second wish makes no second mail: the mail about another bundle is the next one that comes.
	if again := s.call("alice", "POST", "/notices", notice(a, b)).ok(); again.value("data", 0, "attributes", "done") == nil {
		t.Errorf("a wish for bundles that a mail was about is %s", again.body)
	}
	s.call("alice", "POST", "/notices", notice(a)).ok()
	if m := post.Await(2); m.Header.Get("Subject") != "CodaLab: job ready" {
		t.Errorf("the next mail is %+v", m)
	}
	testenv.Await(t, "no notice", func() bool { return !strings.Contains(s.get("alice", "/notices").ok().body, "0x") })
}

func TestMailGoesToTheOwnAddressAndTellsOfReadableBundlesOnly(t *testing.T) {
	t.Parallel()
	s, post := newMailSite(t)
	a, b := s.run("x", nil), s.run("x", nil)
	s.call("bob", "POST", "/notices", notice(a)).is(http.StatusForbidden)
	s.share("alice", "bundle", a, "public", store.PermissionRead)
	s.share("alice", "bundle", b, "public", store.PermissionRead)
	made := s.call("bob", "POST", "/notices", notice(a, b)).ok()
	s.call("alice", "DELETE", "/notices", deletion("notices", made.text("data", 0, "id"))).is(http.StatusNotFound)
	s.share("alice", "bundle", b, "public", store.PermissionNone)
	s.ends(a, codalab.StateReady, "")
	s.ends(b, codalab.StateFailed, "alice's secret")
	m := post.Await(1)
	if m.To[0] != "bob@example.org" || m.Header.Get("Subject") != "CodaLab: 1 of 2 ready, 1 removed or no longer shared with you" || strings.Contains(m.Text, b) || strings.Contains(m.Text, "secret") {
		t.Errorf("the mail is %+v", m)
	}
}

func TestMailThatCannotBeSentIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s, post := newMailSite(t)
	run := s.run("x", nil)
	for email, says := range map[string]string{"": "This server has no e-mail address of yours: its operator sets it.", "a@b, c@d": "is none: its operator sets it."} {
		s.address("alice", email)
		s.call("alice", "POST", "/notices", notice(run)).says(http.StatusForbidden, says)
	}
	self, _, _ := newAccountSite(t)
	self.address("alice", "")
	self.call("alice", "POST", "/notices", notice(self.run("x", nil))).says(http.StatusForbidden, "no e-mail address of yours: set it at "+publicURL+"/rest/account/changeemail, or ask the operator.")
	for _, bad := range []any{notice(), map[string]any{"data": []any{map[string]any{"type": "notices", "id": "x"}}}, map[string]any{"data": []any{map[string]any{"type": "bundles"}}}} {
		s.call("alice", "POST", "/notices", bad).says(http.StatusBadRequest, "one object of the type 'notices' with bundle_uuids")
	}
	s.address("alice", "alice@example.org")
	s.call("alice", "POST", "/notices", notice(make([]string, codalab.MostNoticed+1)...)).says(http.StatusBadRequest, "at most 10000 bundles")
	s.call("alice", "POST", "/notices", notice(codalab.NewUUID())).is(http.StatusForbidden)
	without := newSite(t)
	without.call("alice", "POST", "/notices", notice(without.run("x", nil))).says(http.StatusForbidden, "This server sends no mails: its operator has set no --mail-server.")
	made := s.call("alice", "POST", "/notices", notice(run)).ok().text("data", 0, "id")
	s.call("alice", "DELETE", "/notices", deletion("notices", made)).is(http.StatusNoContent)
	s.ends(run, codalab.StateReady, "")
	s.call("bob", "POST", "/notices", notice(run)).is(http.StatusForbidden)
	other := s.run("x", nil)
	s.ends(other, codalab.StateReady, "")
	s.call("alice", "POST", "/notices", notice(other)).ok()
	if m := post.Await(1); !strings.Contains(m.Text, other) {
		t.Errorf("a mail came that was taken back: %+v", m)
	}
}

func TestMailComesWhenTheMailServerIsThereAgain(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	s, post := newMailSite(t, func(c *server.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	run, refused := s.run("x", nil), s.run("x", nil)
	post.Stop()
	s.call("alice", "POST", "/notices", notice(run)).ok()
	s.ends(run, codalab.StateReady, "")
	problem := func(text string) func() bool {
		return func() bool { return strings.Contains(s.get("alice", "/notices").ok().body, text) }
	}
	testenv.Await(t, "a failed try", problem("connection refused"))
	post.Restart()
	later.Store(int64(2 * time.Minute)) // the next try is due
	if m := post.Await(1); !strings.Contains(m.Text, run) {
		t.Errorf("the mail is %+v", m)
	}
	// A refusal for good is not tried again.
	post.Refuse(func(string) error { return &smtp.SMTPError{Code: 550, Message: "no such user"} })
	s.call("alice", "POST", "/notices", notice(refused)).ok()
	s.ends(refused, codalab.StateReady, "")
	testenv.Await(t, "a mail that is given up", func() bool {
		again := s.call("alice", "POST", "/notices", notice(refused)).ok()
		return again.value("data", 0, "attributes", "done") != nil && strings.Contains(again.body, "no such user")
	})
}

// The store takes no writes after a mail was sent. The mail is sent once, and noted when the store takes writes again.
func TestMailIsSentOnceThoughTheStoreCannotNoteIt(t *testing.T) {
	t.Parallel()
	post := smtptest.Start(t, smtptest.Options{StartTLS: true})
	s := newSiteAt(t, t.TempDir(), "", mailsBy(post))
	s.address("alice", "alice@example.org")
	run := s.run("x", nil)
	s.call("alice", "POST", "/notices", notice(run)).ok()
	files, err := filepath.Glob(filepath.Join(s.dir, "*.db"))
	must(t, err)
	db, err := sqlx.Open("sqlite", "file:"+files[0]+"?_pragma=busy_timeout(60000)")
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.Exec(`CREATE TRIGGER broken BEFORE UPDATE ON notices BEGIN SELECT RAISE(ABORT, 'disk full'); END`)
	must(t, err)
	s.ends(run, codalab.StateReady, "")
	post.Await(1)
	_, err = db.Exec(`DROP TRIGGER broken`)
	must(t, err)
	testenv.Await(t, "a notice that is done", func() bool {
		waiting, err := s.store.AnyNotice(t.Context())
		return err == nil && !waiting
	})
	if n := len(post.Mails()); n != 1 {
		t.Errorf("%d mails", n)
	}
}

// A mail is given up, because its user has no address. When the user has one, the same wish is another one.
func TestMailThatWasGivenUpCanBeAskedForAgain(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	s, post := newMailSite(t, func(c *server.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	run := s.run("x", nil)
	s.call("alice", "POST", "/notices", notice(run)).ok()
	s.address("alice", "")
	s.ends(run, codalab.StateReady, "")
	testenv.Await(t, "a mail that is given up", func() bool {
		waiting, err := s.store.AnyNotice(t.Context())
		return err == nil && !waiting
	})
	s.address("alice", "alice@example.org")
	later.Store(int64(20 * time.Minute))
	s.call("alice", "POST", "/notices", notice(run)).ok()
	if m := post.Await(1); !strings.Contains(m.Text, run) {
		t.Errorf("the mail is %+v", m)
	}
}

func TestMailHasTheBeginOfALongReason(t *testing.T) {
	t.Parallel()
	s, post := newMailSite(t)
	run := s.run("x", nil)
	s.call("alice", "POST", "/notices", notice(run)).ok()
	s.ends(run, codalab.StateFailed, "Exit code 1. "+strings.Repeat("é", 50_000))
	if m := post.Await(1); !strings.Contains(m.Text, "Exit code 1. éé") || len(m.Text) > 2000 {
		t.Errorf("the mail has %d bytes: %.200s", len(m.Text), m.Text)
	}
}
