package source_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// logins returns those of one configuration.
func logins(tb testing.TB, config string) source.Logins {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "config.json")
	must(tb, os.WriteFile(path, []byte(config), 0o600))
	return source.Logins{Files: []source.LoginFile{{Path: path, Owner: "the site"}}}
}

func basic(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

func TestLoginsAreFoundAsDockerAndPodmanFindThem(t *testing.T) {
	t.Parallel()
	l := logins(t, `{"auths": {
		"https://index.docker.io/v1/": {"auth": "`+basic("hub", "1")+`"},
		"https://old.site/v2/": {"auth": "`+basic("old", "1")+`"},
		"ghcr.io": {"username": "host", "password": "1"},
		"ghcr.io/team": {"auth": "`+basic("team", "1")+`"},
		"ghcr.io/team/tools/x": {"identitytoken": "identity"},
		"port.site:5000": {"auth": "`+basic("port", "1")+`"},
		"empty.site": {}}}`)
	for name, want := range map[string]string{
		"docker.io/library/debian": "hub", "ghcr.io/other/x": "host", "ghcr.io/team/x": "team", "ghcr.io/team/tools/x": "identity",
		"ghcr.io/teams/x": "host", "old.site/x": "old", "port.site:5000/a/b": "port", "port.site/a/b": "", "empty.site/x": "", "none.site/x": "",
	} {
		host, repository, _ := strings.Cut(name, "/")
		user, whose, err := source.FindLogin(t.Context(), l, host, repository)
		if err != nil || user != want || (user != "") != (whose == "the site") {
			t.Errorf("%s: the login of %q, %q, %v; want %q", name, whose, user, err, want)
		}
	}
}

func TestOwnersLoginsCountBeforeTheSites(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "logins")
	write := func(name string, mode os.FileMode, config string) {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(config), mode))
	}
	write("../alice.json", 0o600, `{"auths": {"a.site": {"auth": "`+basic("outside", "1")+`"}}}`)
	write("alice.json", 0o600, `{"auths": {"a.site": {"auth": "`+basic("alice", "1")+`"}}}`)
	write("bob/config.json", 0o400, `{"auths": {"a.site": {"auth": "`+basic("bob", "1")+`"}}}`)
	write("carol.json", 0o640, `{"auths": {"a.site": {"auth": "`+basic("carol", "1")+`"}}}`)
	write("dave.json", 0o600, `{"auths": {"a.site": {"auth": "SECRET!"}}}`)
	write("erin.json", 0o600, `SECRET`)
	site := logins(t, `{"auths": {"a.site": {"auth": "`+basic("site", "1")+`"}, "b.site": {"auth": "`+basic("site", "1")+`"}}}`)
	for _, test := range []struct{ owner, host, want, whose, words string }{
		{"alice", "a.site", "alice", "alice", ""},
		{"alice", "b.site", "site", "the site", ""},
		{"bob", "a.site", "bob", "bob", ""},
		{"frank", "a.site", "site", "the site", ""},
		{"../alice", "a.site", "site", "the site", ""},
		{"..", "a.site", "site", "the site", ""},
		{"", "a.site", "site", "the site", ""},
		{"carol", "a.site", "", "", "the logins of carol cannot be used: the login file " + dir + "/carol.json may be read by others: chmod 600 it"},
		{"dave", "a.site", "", "", "the logins of dave cannot be used: " + dir + "/dave.json is not a Docker configuration: it cannot be decoded"},
		{"erin", "a.site", "", "", "is not a Docker configuration: wrong at byte 1"},
	} {
		user, whose, err := source.FindLogin(t.Context(), site.Of(dir, test.owner), test.host, "x")
		if user != test.want || whose != test.whose || (err != nil) != (test.words != "") || err != nil && !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s at %s: %q of %q, %v; want %+v", test.owner, test.host, user, whose, err, test)
		}
		if err != nil && strings.Contains(err.Error(), "SECRET") {
			t.Errorf("error %v cites the file", err)
		}
	}
}

func TestCredentialHelpersAreAsked(t *testing.T) {
	bin := t.TempDir()
	for name, script := range map[string]string{
		"good":  `read server; [ "$1" = get ] && printf '{"ServerURL":"%s","Username":"%s at %s","Secret":"s3cret"}' "$server" "$WHO" "$server"`,
		"token": `printf '{"Username":"<token>","Secret":"identity"}'`,
		"none":  `echo credentials not found in native keychain; exit 1`,
		"bad":   `echo s3cret; echo s3cret >&2; exit 3`,
		"mad":   `echo s3cret`,
		"slow":  `exec sleep 1000`,
	} {
		testenv.WriteProgram(t, filepath.Join(bin, "docker-credential-"+name), []byte("#!/bin/sh\n"+script+"\n"))
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	l := logins(t, `{"credsStore": "good", "credHelpers": {"https://token.site": "token", "none.site": "none", "bad.site": "bad",
		"mad.site": "mad", "missing.site": "missing", "path.site": "../../x"}, "auths": {"docker.io": {}, "file.site": {"auth": "`+basic("file", "1")+`"}}}`)
	l.HelperEnv = []string{"WHO=me", "PATH=" + os.Getenv("PATH")}
	for host, want := range map[string]string{
		"docker.io": "me at https://index.docker.io/v1/", "other.site:5000": "me at other.site:5000", "token.site": "identity", "none.site": "", "file.site": "file",
		"bad.site": "docker-credential-bad has failed: exit status 3", "mad.site": "did not answer with a login", "missing.site": "docker-credential-missing cannot be started",
		"path.site": "cannot be a program's",
	} {
		user, _, err := source.FindLogin(t.Context(), l, host, "x")
		if err == nil && user != want || err != nil && !strings.Contains(err.Error(), want) || err != nil && want == "" {
			t.Errorf("%s: %q, %v; want %q", host, user, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v has a secret in it", host, err)
		}
	}
	r := imagetest.Source()
	r.Stall = 50 * time.Millisecond
	r.Logins = logins(t, `{"credsStore": "slow"}`)
	r.Logins.HelperEnv = l.HelperEnv
	_, err := r.Resolve(t.Context(), imagetest.Reference(t, imagetest.Start(t).Host+"/x"))
	imagetest.WantError(t, err, true, "the logins of the site cannot be used: docker-credential-slow does not answer")
}
