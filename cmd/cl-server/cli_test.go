package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// lines is an output that several goroutines use.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs cl-server and returns its outputs and its exit code.
func start(ctx context.Context, stdin string, args ...string) (stdout, stderr *lines, code func() int) {
	stdout, stderr = &lines{}, &lines{}
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
		{"user add --data " + data, "pw", program.ExitUsage, "accepts 1 arg(s), received 0"},
		{"user add a/b --data " + data, "pw", program.ExitUsage, `user name "a/b": want a letter`},
		{"user add a --disk-quota x --data " + data, "pw", program.ExitUsage, "--disk-quota: invalid size"},
		{"user add a --data " + data, "\n", program.ExitFailure, "the password from standard input is empty"},
		{"user add a --password-file " + data + "/no --data " + data, "", program.ExitFailure, "read password: open "},
	} {
		_, stderr, code := start(t.Context(), test.stdin, strings.Fields(test.args)...)
		if got := code(); got != test.code || !strings.Contains(stderr.String(), test.says) || strings.Contains(stderr.String(), "\n") {
			t.Errorf("%s: exit %d, %s", test.args, got, stderr)
		}
	}
}

func TestUsersAreAddedWhileItServes(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, log, ended := start(ctx, "", "run", "--data", data, "--listen", "127.0.0.1:0")
	var address string
	for address == "" {
		if m := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(log.String()); m != nil {
			address = m[1]
		}
		time.Sleep(time.Millisecond)
	}
	_, second, code := start(t.Context(), "", "run", "--data", data)
	if got := code(); got != program.ExitFailure || !strings.Contains(second.String(), "another cl-server is using it") {
		t.Errorf("a second server: exit %d, %s", got, second)
	}
	for _, args := range []string{"user add alice", "user add admin --root"} {
		_, stderr, code := start(t.Context(), "secret\n", append(strings.Fields(args), "--data", data)...)
		if got := code(); got != 0 {
			t.Fatalf("%s: exit %d, %s", args, got, stderr)
		}
	}
	_, again, code := start(t.Context(), "secret", "user", "add", "other", "--root", "--data", data)
	if got := code(); got != program.ExitFailure || !strings.Contains(again.String(), "there is a root user already") {
		t.Errorf("a second root: exit %d, %s", got, again)
	}
	list, _, code := start(t.Context(), "", "user", "ls", "--data", data)
	if got := code(); got != 0 || !regexp.MustCompile(`(?m)^admin +0 .* 1t$`).MatchString(list.String()) {
		t.Errorf("exit %d, %s", got, list)
	}
	login(t, address, "alice", "secret")
	stop()
	if got := ended(); got != 0 || !strings.Contains(log.String(), "msg=stopped") {
		t.Errorf("exit %d, %s", got, log)
	}
}

func login(t *testing.T, address, user, password string) {
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
	var body map[string]any
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil || answer.StatusCode != http.StatusOK || body["token_type"] != "Bearer" {
		t.Errorf("%s %v, %v", answer.Status, body, err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
}
