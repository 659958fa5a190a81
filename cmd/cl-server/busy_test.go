package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// descriptors is the number of files that a server of these tests may have open.
const descriptors = "256"

// startNarrow starts a server in a process that may have few files open, and returns its address.
func startNarrow(t *testing.T, flags ...string) (host string, log string) {
	t.Helper()
	args := append([]string{"run", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0"}, flags...)
	cmd := exec.Command("sh", append([]string{"-c", `ulimit -n ` + descriptors + ` && exec /proc/` + fmt.Sprint(os.Getpid()) + `/exe "$@"`, "sh"}, args...)...)
	cmd.Env = append(os.Environ(), asServer+"=1")
	stderr, err := cmd.StderrPipe()
	testenv.Must(t, err)
	testenv.Must(t, cmd.Start())
	over := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-over
	})
	out := bufio.NewReader(stderr)
	log, err = out.ReadString('\n')
	go func() {
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // it is killed
		close(over)
	}()
	m := regexp.MustCompile(`address=http://(\S+)`).FindStringSubmatch(log)
	if m == nil {
		t.Fatalf("the server does not start: %s %v", log, err)
	}
	return m[1], log
}

func dialTo(t *testing.T, host string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", host)
	testenv.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func statusOf(ctx context.Context, t *testing.T, at string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	testenv.Must(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	a, err := client.Do(r)
	if err != nil {
		t.Logf("%s: %v", at, err)
		return 0
	}
	_ = a.Body.Close()
	return a.StatusCode
}

// 400 sockets that send nothing kept a server with 256 descriptors from answering for two minutes.
func TestIdleSocketsDoNotKeepTheServerFromAnswering(t *testing.T) {
	t.Parallel()
	host, log := startNarrow(t)
	if !strings.Contains(log, "max_connections=128") {
		t.Errorf("the server says %s", log)
	}
	for range 400 {
		dialTo(t, host)
	}
	for _, path := range []string{"/healthz", "/rest/bundles?keywords=.limit%3D1"} {
		if status := statusOf(t.Context(), t, "http://"+host+path); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// A stranger's requests that never end hold their connections for minutes, and not those of others.
func TestEndlessBodiesDoNotKeepTheServerFromAnswering(t *testing.T) {
	t.Parallel()
	host, _ := startNarrow(t)
	for range 400 {
		// Later ones of this address are refused, and closed.
		_, _ = fmt.Fprintf(dialTo(t, host), "POST /rest/oauth2/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\ngrant_type=")
	}
	if status := statusOf(t.Context(), t, "http://"+host+"/healthz"); status != http.StatusOK {
		t.Errorf("health: %d", status)
	}
}

// Anybody may open doorbells without a login. A program that needs a connection gets the place of one.
func TestDoorbellsDoNotKeepTheServerFromAnswering(t *testing.T) {
	t.Parallel()
	host, _ := startNarrow(t)
	for i := range 400 {
		_, _ = fmt.Fprintf(dialTo(t, host), "GET /ws/worker/%d HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", i)
	}
	if status := statusOf(t.Context(), t, "http://"+host+"/rest/bundles?keywords="+url.QueryEscape(".limit=1")); status != http.StatusOK {
		t.Errorf("a search: %d", status)
	}
}

func TestLongHeadersAreRefused(t *testing.T) {
	t.Parallel()
	host, _ := startNarrow(t)
	var line string
	testenv.Await(t, "long headers are refused", func() bool {
		c := dialTo(t, host)
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n"+strings.Repeat("X: "+strings.Repeat("x", 1<<10)+"\r\n", 300)+"\r\n")
		line, _ = bufio.NewReader(c).ReadString('\n') // the answer may be lost, because the server closes before it has read all
		return line != ""
	}, &line)
	if !strings.Contains(line, "431 Request Header Fields Too Large") {
		t.Errorf("%q", line)
	}
}

func TestNumberOfConnectionsLeavesRoomForFiles(t *testing.T) {
	t.Parallel()
	host, log := startNarrow(t, "--max-connections", "200")
	if status := statusOf(t.Context(), t, "http://"+host+"/healthz"); status != http.StatusOK || !strings.Contains(log, "max_connections=200") {
		t.Errorf("%d, %s", status, log)
	}
	var most web
	most.connections = 1 << 30
	if err := most.check(); err == nil || !strings.Contains(err.Error(), "raise its limit (ulimit -n") {
		t.Errorf("%v", err)
	}
	most.connections = 3
	if err := most.check(); err == nil || !strings.Contains(err.Error(), "want at least 4") {
		t.Errorf("%v", err)
	}
}
