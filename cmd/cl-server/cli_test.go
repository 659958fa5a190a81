package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// start runs cl-server and returns its outputs and its exit code.
func start(ctx context.Context, stdin string, args ...string) (stdout, stderr *testenv.Output, code func() int) {
	stdout, stderr = &testenv.Output{}, &testenv.Output{}
	done := make(chan int, 1)
	go func() {
		err := run(ctx, program.Process{
			Args: args, Stdin: strings.NewReader(stdin), Stdout: stdout, Stderr: stderr,
			Getenv: func(string) string { return "" }, Now: time.Now,
		})
		if err != nil {
			_, _ = stderr.Write([]byte(err.Error()))
		}
		done <- program.Code(ctx, err)
	}()
	return stdout, stderr, func() int { return <-done }
}

func TestBadCommandLines(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args  string
		stdin string
		code  int
		says  string
	}{
		{"run", "", program.ExitUsage, "--data is needed"},
		{"nosuch", "", program.ExitUsage, `unknown command "nosuch"`},
		{"run --data " + data + " --nosuch", "", program.ExitUsage, "unknown flag: --nosuch"},
		{"run --data " + data + " x", "", program.ExitUsage, `unknown command "x"`},
		{"run --data " + data + " --listen nowhere", "", program.ExitFailure, "listen on nowhere: "},
		{"run --data " + data + " --link-root data", "", program.ExitUsage, "--link-root data: want an absolute path"},
		{"run --data " + data + " --link-root " + data + "/no", "", program.ExitUsage, "--link-root: "},
		{"run --data " + data + " --link-root /", "", program.ExitUsage, data + " would be open to everybody"},
		{"run --data " + data + " --link-root " + data + "/bundles", "", program.ExitUsage, data + " would be open to everybody"},
		{"run --data " + data + " --link-root /proc", "", program.ExitUsage, "/proc would be open to everybody"},
		{"run --data " + file, "", program.ExitFailure, "open data directory: "},
		{"run --data " + data + " --database a.db", "", program.ExitUsage, "--database: want postgres://USER@HOST/DATABASE"},
		{"run --data " + data + " --database postgres://u:p/w@h/x", "", program.ExitUsage, "--database: the URL is not written as"},
		{"run --data " + data + "2 --database postgres://127.0.0.1:1/x", "", program.ExitTransient, "the database does not answer"},
		{"user add --data " + data, "correct horse", program.ExitUsage, "accepts 1 arg(s), received 0"},
		{"user add a/b --data " + data, "correct horse", program.ExitUsage, `user name "a/b": want a letter`},
		{"user add a --disk-quota x --data " + data, "correct horse", program.ExitUsage, "--disk-quota: invalid size"},
		{"user add a --data " + data, "\n", program.ExitFailure, "the password from standard input is empty"},
		{"user add a --data " + data, "too short", program.ExitFailure, "a password has at least 10 characters, and this one has 9"},
		{"user add anna --data " + data, "Password2026", program.ExitFailure, "one of the first that a guesser tries"},
		{"user reset a --address nowhere --data " + data, "", program.ExitUsage, "--address \"nowhere\": want https://HOST"},
		{"user reset a --data " + data, "", program.ExitFailure, "there is no user a"},
		{"user sessions a --data " + data, "", program.ExitFailure, "there is no user a"},
		{"user add a --id 7 --data " + data, "correct horse", program.ExitUsage, "--id \"7\": want 0x and 32 hexadecimal digits"},
		{"user add a --time-quota x --data " + data, "correct horse", program.ExitUsage, "--time-quota: invalid"},
		{"user add a --worker-for x --data " + data, "correct horse", program.ExitUsage, "scope \"x\": want everybody, user=NAME or group=NAME"},
		{"user add a --worker-for user=x --data " + data, "correct horse", program.ExitFailure, "scope user=x: "},
		{"user add a --worker-for group=x --data " + data, "correct horse", program.ExitFailure, "scope group=x: there is no such group"},
		{"user add a --hashed --data " + data, "correct horse", program.ExitFailure, "not a hash of a password"},
		{"user rm a --data " + data, "", program.ExitFailure, "there is no user a"},
		{"user add a --password-file " + data + "/no --data " + data, "", program.ExitFailure, "read password file: open "},
	} {
		_, stderr, code := start(t.Context(), test.stdin, strings.Fields(test.args)...)
		if got := code(); got != test.code || !strings.Contains(stderr.String(), test.says) || strings.Contains(stderr.String(), "\n") {
			t.Errorf("%s: exit %d, %s", test.args, got, stderr)
		}
	}
}

// onEach runs a test with the flags of an empty place of each kind.
func onEach(t *testing.T, test func(t *testing.T, dir string, flags []string)) {
	t.Helper()
	for kind, database := range map[string]func(testing.TB) []string{
		"SQLite":     func(testing.TB) []string { return nil },
		"PostgreSQL": func(tb testing.TB) []string { tb.Helper(); return []string{"--database", testenv.Postgres(tb)} },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			test(t, dir, append([]string{"--data", dir}, database(t)...))
		})
	}
}

// serveAt runs a server, and returns its address once it serves.
func serveAt(ctx context.Context, flags []string) (address string, log *testenv.Output, ended func() int) {
	_, log, ended = start(ctx, "", append([]string{"run", "--listen", "127.0.0.1:0"}, flags...)...)
	for ctx.Err() == nil {
		if m := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(log.String()); m != nil {
			return m[1], log, ended
		}
		time.Sleep(time.Millisecond)
	}
	return "", log, ended
}

// does runs a command that has to succeed, and returns its output.
func does(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	stdout, stderr, code := start(t.Context(), stdin, args...)
	if got := code(); got != 0 {
		t.Fatalf("%s: exit %d, %s", args, got, stderr)
	}
	return stdout.String()
}

// refuses runs a command that must fail with this message.
func refuses(t *testing.T, says string, args ...string) {
	t.Helper()
	_, stderr, code := start(t.Context(), "correct horse", args...)
	if got := code(); got != program.ExitFailure || !strings.Contains(stderr.String(), says) {
		t.Errorf("%s: exit %d, %s", args, got, stderr)
	}
}

func TestUsersAreAddedWhileItServes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, flags []string) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		address, log, ended := serveAt(ctx, flags)
		refuses(t, "another cl-server is using it", append([]string{"run"}, flags...)...)
		does(t, "correct horse\n", append([]string{"user", "add", "alice"}, flags...)...)
		does(t, "correct horse\n", append([]string{"user", "add", "admin", "--root"}, flags...)...)
		refuses(t, "there is a root user already", append([]string{"user", "add", "other", "--root"}, flags...)...)
		if list := does(t, "", append([]string{"user", "ls"}, flags...)...); !regexp.MustCompile(`(?m)^admin +0 +root .* 1t `).MatchString(list) {
			t.Error(list)
		}
		login(t, address, "alice", "correct horse")
		stop()
		if got := ended(); got != 0 || !strings.Contains(log.String(), "msg=stopped") {
			t.Errorf("exit %d, %s", got, log)
		}
	})
}

func TestUsersAreChangedAndRemoved(t *testing.T) {
	t.Parallel()
	flags := []string{"--data", filepath.Join(t.TempDir(), "data")}
	user := func(stdin string, words ...string) string {
		t.Helper()
		return does(t, stdin, append(append([]string{"user"}, words...), flags...)...)
	}
	address, _, _ := serveAt(t.Context(), flags)
	const id = "0x0123456789abcdef0123456789abcdef"
	user("pbkdf2_sha256$30000$abcdefghijkl$T6VbO6Dk/YpvFcNZKMVjus8YXk91QT/zSac5iIiHE4s=\n", "add", "alice", "--id", id, "--hashed", "--disk-quota", "5g")
	login(t, address, "alice", "secret")
	user("first horse", "add", "bridge", "--worker-for", "everybody")
	if got := user("", "scope", "bridge", "--worker-for", "user=alice"); got != "user=alice\n" {
		t.Errorf("scopes %q", got)
	}
	if got := user("", "scope", "alice"); got != "alice is no worker account\n" {
		t.Errorf("scopes %q", got)
	}
	login(t, address, "bridge", "first horse")
	user("second horse", "passwd", "bridge")
	login(t, address, "bridge", "second horse")
	if got := user("", "quota", "alice", "--time-quota", "2h", "--parallel-runs", "7"); !regexp.MustCompile(`(?m)^alice +` + id + ` +user .* 5g +0 +20000000 +0.0s +2h0m +7$`).MatchString(got) {
		t.Error(got)
	}
	if got := user("", "ls", "--json"); !strings.Contains(got, `"time_quota": 7200`) || !strings.Contains(got, `"worker": true`) {
		t.Error(got)
	}
	user("", "rm", "bridge")
	if got := user("", "ls"); strings.Contains(got, "bridge") {
		t.Error(got)
	}
}

// The operator's one-time code sets a new password at the running server. Neither the code nor a password is in its log.
func TestUserSetsAPasswordByTheOperatorsCode(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, flags []string) {
		user := func(stdin string, words ...string) string {
			t.Helper()
			return does(t, stdin, append(append([]string{"user"}, words...), flags...)...)
		}
		user("correct horse", "add", "alice")
		address, log, _ := serveAt(t.Context(), flags)
		login(t, address, "alice", "correct horse")
		if got := user("", "sessions", "alice"); !regexp.MustCompile(`(?m)^[a-z0-9]{12} +Go-http-client/1.1 +127.0.0.1 +20`).MatchString(got) {
			t.Error(got)
		}
		var reset struct{ Code, Page string }
		if err := json.Unmarshal([]byte(user("", "reset", "alice", "--address", address, "--json")), &reset); err != nil || strings.Contains(reset.Page, reset.Code) {
			t.Errorf("%+v, %v", reset, err)
		}
		finalize := func() int {
			form := url.Values{"code": {reset.Code}, "password": {"drei kleine Fische"}, "confirm_password": {"drei kleine Fische"}}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, reset.Page+"/finalize", strings.NewReader(form.Encode()))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			return answer.StatusCode
		}
		if first, second := finalize(), finalize(); first != http.StatusOK || second != http.StatusForbidden {
			t.Errorf("%d, and again %d", first, second)
		}
		if got := user("", "sessions", "alice", "--json"); got != "[]\n" {
			t.Errorf("sessions after it: %s", got)
		}
		login(t, address, "alice", "drei kleine Fische")
		if got := user("", "sessions", "alice", "--revoke"); got != "all sessions of alice have ended (1), and all tokens that they made\n" {
			t.Error(got)
		}
		for _, secret := range []string{reset.Code, strings.ReplaceAll(reset.Code, "-", ""), "Fische", "horse"} {
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log has %s: %s", secret, log)
			}
		}
		if !strings.Contains(log.String(), `msg="password changed by a one-time code" user=alice`) {
			t.Errorf("the log: %s", log)
		}
	})
}

// A server with the wrong database would remove contents that it does not know.
func TestDirectoryAndDatabaseBelongTogether(t *testing.T) {
	t.Parallel()
	url, other := testenv.Postgres(t), testenv.Postgres(t)
	dir := filepath.Join(t.TempDir(), "data")
	does(t, "correct horse", "user", "add", "alice", "--data", dir, "--database", url)
	refuses(t, "its database is in PostgreSQL, last seen at postgres:///cltest", "run", "--data", dir)
	refuses(t, "the database is another directory's", "run", "--data", dir+"2", "--database", url)
	file := filepath.Join(t.TempDir(), "data")
	does(t, "correct horse", "user", "add", "alice", "--data", file)
	refuses(t, "its database is codalab.db", "run", "--data", file, "--database", other)
	for _, d := range []string{dir, file} {
		if err := os.Mkdir(filepath.Join(d, "bundles", "0x1-2"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	refuses(t, "the database is new, and the directory has contents", "run", "--data", dir, "--database", other)
	refuses(t, "has contents of bundles, and the database has no bundles", "run", "--data", file)
}

// login returns a token.
func login(t *testing.T, address, user, password string) string {
	t.Helper()
	answer := signIn(t, address, user, password)
	var body map[string]any
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil || answer.StatusCode != http.StatusOK || body["token_type"] != "Bearer" {
		t.Errorf("%s %v, %v", answer.Status, body, err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
	token, _ := body["access_token"].(string)
	return token
}

// try returns the status of a sign-in.
func try(t *testing.T, address, user, password string) int {
	t.Helper()
	answer := signIn(t, address, user, password)
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
	return answer.StatusCode
}

func signIn(t *testing.T, address, user, password string) *http.Response {
	t.Helper()
	form := url.Values{"grant_type": {"password"}, "username": {user}, "password": {password}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/rest/oauth2/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("codalab_cli_client", "")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
