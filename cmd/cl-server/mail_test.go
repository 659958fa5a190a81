package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/smtptest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// asksForMail asks for a mail about a bundle.
func (p *process) asksForMail(t *testing.T, uuid string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"data": []any{map[string]any{"type": "notices", "attributes": map[string]any{"bundle_uuids": []string{uuid}}}}})
	testenv.Must(t, err)
	if p.object(t.Context(), http.MethodPost, "/notices", bytes.NewReader(body)) == "" {
		t.Fatal("there is no notice")
	}
}

// A mail survives kill -9 of the server before it is sent. After one between its sending and the note of that, it comes a
// second time with the same Message-ID. It comes no more after that.
func TestMailIsNotLostByAKill(t *testing.T) {
	t.Parallel()
	post := smtptest.Start(t, smtptest.Options{})
	dir := filepath.Join(t.TempDir(), "data")
	flags := []string{"--data", dir}
	served := append(flags, "--mail-server", post.Address, "--mail-tls", "none", "--mail-from", "CodaLab <codalab@example.org>")
	does(t, "correct horse", append([]string{"user", "add", "alice"}, flags...)...)
	data := func(do func(*store.Store) error) {
		t.Helper()
		s, err := store.Open(t.Context(), dir)
		testenv.Must(t, err)
		testenv.Must(t, do(s))
		testenv.Must(t, s.Close())
	}
	does(t, "", append([]string{"user", "email", "alice", "alice@example.org"}, flags...)...)
	p := startProcess(t, served)
	p.signIn()
	user := p.alice
	first, second, third := p.create(t.Context()), p.create(t.Context()), p.create(t.Context())
	p.asksForMail(t, first)
	p.kill()
	data(func(s *store.Store) error {
		_, err := s.Change(t.Context(), first, func(b *store.Bundle) error { b.State = codalab.StateReady; return nil })
		return err
	})
	p = startProcess(t, served)
	p.alice = user
	if m := post.Await(1); !strings.Contains(m.Text, first) {
		t.Errorf("the mail is %+v", m)
	}

	killed := make(chan struct{})
	post.OnArrival(func() { p.kill(); close(killed) })
	p.asksForMail(t, second)
	p.send(t.Context(), http.MethodPut, "/bundles/"+second+"/contents/blob/?filename=x&finalize_on_success=1", strings.NewReader("x"))
	testenv.Receive(t, "the kill", killed)
	post.OnArrival(nil)
	p = startProcess(t, served)
	p.alice = user
	if a, b := post.Await(2), post.Await(3); a.Header.Get("Message-Id") != b.Header.Get("Message-Id") || !strings.Contains(b.Text, second) {
		t.Errorf("the mails are %+v and %+v", a, b)
	}

	p.asksForMail(t, third)
	p.kill()
	p = startProcess(t, served)
	p.alice = user
	p.send(t.Context(), http.MethodPut, "/bundles/"+third+"/contents/blob/?filename=x&finalize_on_success=1", strings.NewReader("x"))
	if m := post.Await(4); !strings.Contains(m.Text, third) {
		t.Errorf("the fourth mail is %+v", m)
	}
}

func TestOperatorSetsTheAddressOfAUser(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, flags []string) {
		email := func(words ...string) []string {
			return append(append([]string{"user", "email", "alice"}, words...), flags...)
		}
		does(t, "correct horse", append([]string{"user", "add", "alice"}, flags...)...)
		for _, step := range []struct{ set, want string }{{"none", ""}, {"alice@example.org", "alice@example.org\n"}, {"none", "alice@example.org\n"}, {"", ""}, {"none", ""}} {
			var words []string
			if step.set != "none" {
				words = []string{step.set}
			}
			if got := does(t, "", email(words...)...); got != step.want {
				t.Errorf("after %q: %q", step.set, got)
			}
		}
		for _, bad := range []string{"alice", "Alice <alice@example.org>", "a@b, c@d", "a@b\r\nBcc: eve@example.org"} {
			if _, stderr, code := start(t.Context(), "", email(bad)...); code() != program.ExitUsage || !strings.Contains(stderr.String(), "is no address: want NAME@HOST") {
				t.Errorf("%q: %s", bad, stderr)
			}
		}
	})
}

func TestOperatorChecksTheMailServer(t *testing.T) {
	t.Parallel()
	post := smtptest.Start(t, smtptest.Options{User: "u", Password: "p"})
	file := filepath.Join(t.TempDir(), "password")
	testenv.Must(t, os.WriteFile(file, []byte("p\n"), 0o600))
	flags := []string{"mail", "--mail-server", post.Address, "--mail-tls", "none", "--mail-from", "codalab@example.org", "--mail-user", "u", "--mail-password-file", file}
	if said := does(t, "", flags...); said != post.Address+" takes the connection and the login.\n" || len(post.Mails()) > 0 {
		t.Errorf("says %q, and sends %d mails", said, len(post.Mails()))
	}
	if said := does(t, "", append(flags, "--to", "root@example.org")...); said != post.Address+" has taken a mail to root@example.org.\n" {
		t.Errorf("says %q", said)
	}
	if m := post.Await(1); m.To[0] != "root@example.org" {
		t.Errorf("the mail is %+v", m)
	}
	testenv.Must(t, os.WriteFile(file, []byte("wrong\n"), 0o600))
	refuses(t, "Authentication failed", flags...)
}

func TestBadFlagsOfMails(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	open := filepath.Join(t.TempDir(), "password")
	testenv.Must(t, os.WriteFile(open, []byte("p\n"), 0o644))
	testenv.Must(t, os.Chmod(open, 0o644))
	for flags, says := range map[string]string{
		"--mail-from a@example.org":                                                 "the flags of mails need --mail-server",
		"--mail-server smtp.example.org":                                            `"" is no address of a sender`,
		"--mail-server smtp.example.org:x --mail-from a@example.org":                "want HOST or HOST:PORT",
		"--mail-server smtp.example.org --mail-from a@example.org --mail-tls ssl":   `"ssl" is no way to encrypt: want starttls, tls or none`,
		"--mail-server smtp.example.org --mail-from a@example.org --mail-user u":    "a user and a password need each other",
		"--mail-server smtp.example.org --mail-password-file " + data:               "no such file",
		"--mail-server smtp.example.org --mail-user u --mail-password-file " + open: "may be read by others",
		"--help-address a@example.org":                                              "--help-address needs --mail-server",
		"--mail-server smtp.example.org --mail-from a@example.org --help-address x": `--help-address "x" is no address: want NAME@HOST`,
		"--sign-up": "--sign-up needs --mail-server and --public-url",
		"--sign-up --mail-server smtp.example.org --mail-from a@example.org":                                                                         "--sign-up needs --mail-server and --public-url",
		"--sign-up-domain example.org":                                                                                                               "--sign-up-domain needs --sign-up",
		"--public-url http://h --mail-server smtp.example.org --mail-from a@example.org":                                                             `--public-url "http://h": want https`,
		"--sign-up --sign-up-domain a@b --mail-server smtp.example.org --mail-from a@example.org --public-url https://h":                             `--sign-up-domain "a@b" is no domain`,
		"--sign-up --mail-server smtp.example.org --mail-from a@example.org --public-url https://h --oidc-issuer https://l --oidc-client-id codalab": "--sign-up and --oidc-issuer exclude each other",
	} {
		_, stderr, code := start(t.Context(), "", append([]string{"run", "--data", data}, strings.Fields(flags)...)...)
		if got := code(); got != program.ExitUsage || !strings.Contains(stderr.String(), says) {
			t.Errorf("%s: exit code %d, %q; want %q", flags, got, stderr.String(), says)
		}
	}
}

// Only links in mails have the public address. A site without them may have set another one.
func TestPublicAddressIsCheckedForMailsAlone(t *testing.T) {
	t.Parallel()
	testenv.Must(t, new(accountFlags).set(&server.Config{}, "http://codalab.example"))
}

// The flags reach the server: a person signs up by the mail, and has the quotas of "user add".
func TestPersonSignsUpWhereTheFlagsSaySo(t *testing.T) {
	t.Parallel()
	post := smtptest.Start(t, smtptest.Options{})
	dir := filepath.Join(t.TempDir(), "data")
	p := startProcess(t, []string{
		"--data", dir, "--mail-server", post.Address, "--mail-tls", "none", "--mail-from", "codalab@example.org",
		"--public-url", "https://codalab.example/", "--sign-up", "--sign-up-domain", "example.org",
	})
	send := func(path string, form url.Values) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.address+"/rest/account/"+path, strings.NewReader(form.Encode()))
		testenv.Must(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := http.DefaultClient.Do(r)
		testenv.Must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		testenv.Must(t, err)
		return string(text)
	}
	form := url.Values{"username": {"ann"}, "email": {"ann@example.com"}, "password": {"drei kleine Fische"}, "confirm_password": {"drei kleine Fische"}}
	if text := send("signup", form); !strings.Contains(text, "Only addresses of example.org may sign up.") {
		t.Errorf("another domain: %s", text)
	}
	form.Set("email", "ann@example.org")
	send("signup", form)
	_, rest, _ := strings.Cut(post.Await(1).Text, "\n  https://codalab.example/rest/account/verify/")
	code, _, _ := strings.Cut(rest, "\n")
	form.Set("code", code)
	if text := send("verify", form); !strings.Contains(text, "The address is confirmed.") {
		t.Fatalf("the code %q: %s", code, text)
	}
	if login(t, p.address, "ann", "drei kleine Fische") == "" {
		t.Error("no token")
	}
	if quota := does(t, "", "user", "quota", "ann", "--data", dir); !strings.Contains(quota, "100000") {
		t.Errorf("the quotas are %s", quota)
	}
}
