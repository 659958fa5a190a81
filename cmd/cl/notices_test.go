package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/smtptest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// newMailSite is a site whose server sends mails, and has the user's address.
func newMailSite(t *testing.T) (*transferSite, *smtptest.Server) {
	t.Helper()
	post := smtptest.Start(t, smtptest.Options{})
	s := newTransferSite(t, 1<<40, func(c *server.Config) {
		c.Mail = mail.Options{Server: post.Address, TLS: mail.None, From: "codalab@example.org"}
		u, err := c.Store.User(t.Context(), userName)
		if err == nil {
			_, err = c.Store.ChangeUser(t.Context(), u.ID, func(u *store.User) error { u.Email = "ann@example.org"; return nil })
		}
		testenv.Must(t, err)
	})
	return s, post
}

// A laptop is closed while cl waits.
func TestMailComesAlsoIfTheWaitEndsBefore(t *testing.T) {
	t.Parallel()
	s, post := newMailSite(t)
	a, b := s.aRun(t, "a", "true"), s.aRun(t, "b", "true")
	run := s.start(t, "wait", a, b, "--notify", "mail")
	run.tells(t, "cl: the server sends ann@example.org a mail when all 2 have ended, also if this computer is off; cl notify rm 0x")
	if code := run.interrupt(t); code != 130 {
		t.Errorf("exit code %d", code)
	}
	s.ends(t, 0, "kill", a, b)
	if m := post.Await(1); m.To[0] != "ann@example.org" || m.Header.Get("Subject") != "CodaLab: 0 of 2 ready, 2 killed" {
		t.Errorf("the mail is %+v", m)
	}
	// The same wait again makes no second mail.
	again := s.ends(t, 1, "wait", a, b, "--notify", "mail")
	if !strings.HasPrefix(again.stderr, "cl: the server has sent ann@example.org a mail about these bundles at ") {
		t.Errorf("the same wait tells %q", again.stderr)
	}
	tail := s.start(t, "wait", "--tail", s.aRun(t, "c", "true"), "--notify", "mail")
	tail.tells(t, "cl: the server sends ann@example.org a mail when it has ended")
	tail.interrupt(t)
}

func TestMailsAreAskedForListedAndTakenBack(t *testing.T) {
	t.Parallel()
	s, post := newMailSite(t)
	a, b := s.aRun(t, "a", "true"), s.aRun(t, "b", "true")
	first := strings.TrimSpace(s.ends(t, 0, "notify", "add", "a").stdout)
	second := strings.TrimSpace(s.ends(t, 0, "notify", "add", "^1-2").stdout)
	if again := strings.TrimSpace(s.ends(t, 0, "notify", "add", a, b).stdout); again != second {
		t.Errorf("the same wish again is %s, not %s", again, second)
	}
	list := s.ends(t, 0, "notify", "ls").stdout
	if !strings.Contains(list, first[:8]+"  1 bundle ") || !strings.Contains(list, second[:8]+"  2 bundles ") || !strings.Contains(list, "ann@example.org") {
		t.Errorf("the list is\n%s", list)
	}
	var views []noticeView
	if err := json.Unmarshal([]byte(s.ends(t, 0, "notify", "ls", "--json").stdout), &views); err != nil || len(views) != 2 || views[0].ID != first || views[1].Bundles != 2 {
		t.Errorf("%+v, %v", views, err)
	}
	s.ends(t, 0, "notify", "rm", first[:8])
	if r := s.ends(t, 1, "notify", "rm", first[:8]); !strings.Contains(r.stderr, "no mail "+first[:8]+" is to come") {
		t.Errorf("the second removal says %q", r.stderr)
	}
	if r := s.ends(t, 1, "notify", "rm", second, "0xffff"); !strings.Contains(r.stderr, "no mail 0xffff is to come") {
		t.Errorf("a removal of one that is not there says %q", r.stderr)
	}
	s.ends(t, 0, "kill", a, b)
	if m := post.Await(1); m.Header.Get("Subject") != "CodaLab: 0 of 2 ready, 2 killed" {
		t.Errorf("the mail is %+v", m)
	}
}

func TestMailThatCannotComeIsRefusedBeforeTheWait(t *testing.T) {
	t.Parallel()
	stock := &scene{states: map[string][]string{uuidNumber(0): {"running"}}}
	_, _, err := play(t, stock, "--notify", "mail")
	if err == nil || !strings.Contains(err.Error(), "is CodaLab's own server, or an old cl-server: it sends no mails about runs; --notify webhook and --notify terminal come from here") {
		t.Errorf("on CodaLab's own server: %v", err)
	}
	without := newTransferSite(t, 1<<40)
	uuid := without.aRun(t, "a", "true")
	r := without.ends(t, 1, "wait", uuid, "--notify", "mail")
	if r.stderr != "This server sends no mails: its operator has set no --mail-server.\n" {
		t.Errorf("a server without mails: %q", r.stderr)
	}
	refused(t, []string{"wait", "a", "b", "--notify", "mail", "--any"}, "leave out --any and --first-failure")
	refused(t, []string{"notify", "add"}, "cl notify add needs bundles or a sweep")
	refused(t, []string{"notify", "rm"}, "cl notify rm needs the id of a mail")
	refused(t, []string{"notify", "ls", "x"}, "takes no names")
	refused(t, []string{"notify", "lss"}, "did you mean ls?")
}
