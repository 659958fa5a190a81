package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// twinSite is a site for bridges in processes of their own.
type twinSite struct{ dir, config, ledger string }

func newTwinSite(t *testing.T) twinSite {
	t.Helper()
	dir := t.TempDir()
	_, _, web := startServer(t, filepath.Join(dir, "server"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := twinSite{dir, filepath.Join(dir, "bridge.toml"), filepath.Join(dir, "state", "ledger.db")}
	password := filepath.Join(dir, "password")
	text := fmt.Sprintf("server = %q\nuser = \"ann\"\npassword_file = %q\nshared = %q\nledger = %q\nname = \"ann\"\nworker = %q\n[slurm]\nbin = %q\n[queue.cpu]\n",
		web.URL, password, filepath.Join(dir, "shared"), s.ledger, self, writeSlurmCommands(t, t.TempDir()))
	if err := errors.Join(os.WriteFile(password, []byte("secret\n"), 0o600), os.WriteFile(s.config, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	return s
}

// start starts a bridge, and returns once it has logged that it started.
func (s twinSite) start(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command("cl-bridge", append([]string{"run", "--config", s.config}, args...)...)
	log, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	var said bytes.Buffer
	for lines := bufio.NewScanner(io.TeeReader(log, &said)); lines.Scan(); {
		if strings.Contains(lines.Text(), "msg=started ") {
			go func() { _, _ = io.Copy(io.Discard, log) }() // ends with the bridge
			return c
		}
	}
	t.Fatalf("the bridge does not start:\n%s", &said)
	return nil
}

// A state directory that was lost, --ledger, and a second host all make a twin: a bridge of
// the same name with a ledger of its own.
func TestTwinOfABridgeIsRefusedAtItsStart(t *testing.T) {
	t.Parallel()
	s := newTwinSite(t)
	first := s.start(t)
	out, err := exec.Command("cl-bridge", "run", "--config", s.config, "--ledger", filepath.Join(s.dir, "other.db")).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("the twin ends with %v:\n%s", err, out)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("(process %d on %s, with the ledger %s), which runs", first.Process.Pid, host, s.ledger); !strings.Contains(string(out), want) {
		t.Errorf("no %q in\n%s", want, out)
	}

	// The bridge itself starts again at once, however it ended.
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		if err := first.Process.Signal(end); err != nil {
			t.Fatal(err)
		}
		_ = first.Wait()
		first = s.start(t)
	}
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	s.start(t, "--ledger", filepath.Join(s.dir, "other.db")) // the first has given the directory up
}

// Cron begins the next pass whether or not the last one has ended.
func TestPassBesideABridgeIsRefusedAndMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	s := newTwinSite(t)
	pass := func() (code int, said string) {
		t.Helper()
		out, err := exec.Command("cl-bridge", "run", "--once", "--config", s.config).CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exit.ExitCode(), string(out)
		} else if err != nil {
			t.Fatal(err)
		}
		return 0, string(out)
	}
	first := s.start(t)
	if code, said := pass(); code != program.ExitTransient || !strings.Contains(said, "another cl-bridge works on it") {
		t.Errorf("beside a bridge a pass ends with %d:\n%s", code, said)
	}
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	if code, said := pass(); code != 0 || !strings.Contains(said, `msg="the pass ends"`) {
		t.Errorf("after it a pass ends with %d:\n%s", code, said)
	}
}

// A name that is fixed in the configuration may be used on two hosts that share nothing else.
func TestTwinWithAnotherSharedDirectoryIsRefusedByTheServer(t *testing.T) {
	t.Parallel()
	s := newTwinSite(t)
	s.start(t)
	config, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	twin := filepath.Join(s.dir, "twin.toml")
	text := strings.Replace(string(config), filepath.Join(s.dir, "shared"), filepath.Join(s.dir, "other"), 1)
	if err := os.WriteFile(twin, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("timeout", "20", "cl-bridge", "run", "--config", twin, "--ledger", filepath.Join(s.dir, "other.db")).CombinedOutput()
	host, hostErr := os.Hostname()
	if hostErr != nil {
		t.Fatal(hostErr)
	}
	if want := "409 Worker 'ann-cpu' is in use by another program, on " + host + ". Stop that one"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v, no %q in\n%s", err, want, out)
	}
}

// onAnotherHost runs cl-bridge on a host of another name, on which the directory of the ledger is
// an empty one of its own.
func (s twinSite) onAnotherHost(t *testing.T, args ...string) (string, error) {
	t.Helper()
	script := `mount -t tmpfs tmpfs "$0" && hostname elsewhere && exec cl-bridge "$@"`
	c := exec.Command("unshare", append([]string{"--mount", "--uts", "sh", "-c", script, filepath.Dir(s.ledger)}, args...)...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil && said.Len() == 0 {
		err = nil // an exit code of status, without an error
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, &said)
	}
	return string(out), err
}

func TestStatusAndExplainWorkOnAnotherLoginNode(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	testenv.Containers(t)
	s := newTwinSite(t)
	book, release, err := assembly.TakeLedger(t.Context(), s.ledger)
	if err != nil {
		t.Fatal(err)
	}
	rows := []plan.Row{{Bundle: gone, Queue: "cpu", Phase: plan.Done, Reason: "the server acknowledged the verdict", DecidedAt: noon}}
	if err := book.Save(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	if err := book.Delete(t.Context(), rows[0]); err != nil {
		t.Fatal(err)
	}
	release()
	bridge := s.start(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}

	var got heartbeat.Status
	testenv.Await(t, "the bridge has started", func() bool {
		got = heartbeat.Status{}
		out, err := s.onAnotherHost(t, "status", "--json", "--config", s.config)
		if err := errors.Join(err, json.Unmarshal([]byte(out), &got)); err != nil {
			t.Fatal(err)
		}
		return !got.Starting
	}, &got)
	if !got.Running || got.Ledger != s.ledger || got.WrittenAt.IsZero() || got.Last == nil || got.Last.Host != host || got.Last.Process != bridge.Process.Pid || len(got.Queues) != 1 {
		t.Errorf("status on another host: %+v", got)
	}
	for args, want := range map[string]string{
		"status":              "runs on " + host,
		"explain 0x99":        gone + " is done and forgotten; this was its history:",
		"explain " + gone:     "the server acknowledged the verdict",
		"explain 0x99 --json": `"reason": "the server acknowledged the verdict"`,
	} {
		if out, err := s.onAnotherHost(t, append(strings.Fields(args), "--config", s.config)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s on another host: %v, no %q in\n%s", args, err, want, out)
		}
	}
	for args, want := range map[string]string{
		"explain 0x77": "no bundle whose UUID begins with 0x77 in the ledger " + s.ledger,
		"explain x/y":  `"x/y" names no bundle`,
		"sweep":        "the ledger " + s.ledger + " is on " + host + ", and can be used there only",
		"recover":      "is on " + host,
	} {
		if _, err := s.onAnotherHost(t, append(strings.Fields(args), "--config", s.config)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s on another host: %v, want %q", args, err, want)
		}
	}

	if err := bridge.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = bridge.Wait()
	if out, err := s.onAnotherHost(t, "status", "--config", s.config); err != nil || !strings.Contains(out, "does not run") {
		t.Errorf("status of a bridge that has ended: %v\n%s", err, out)
	}
	if _, err := s.onAnotherHost(t, "explain", "0x99", "--config", s.config); err == nil || !strings.Contains(err.Error(), "the bridge on "+host+" does not run") {
		t.Errorf("explain by a bridge that has ended: %v", err)
	}
}

func TestRunningBridgeFollowsSlurmsSettings(t *testing.T) {
	t.Parallel()
	s := newTwinSite(t)
	s.start(t)
	var got heartbeat.Status
	testenv.Await(t, "the bridge has read Slurm's settings", func() bool {
		got = heartbeat.Status{}
		out, err := exec.Command("cl-bridge", "status", "--json", "--config", s.config).Output()
		if err := errors.Join(wordless(err), json.Unmarshal(out, &got)); err != nil {
			t.Fatal(err)
		}
		return got.Last != nil && got.Last.Settings != nil
	}, &got)
	if !got.Last.Settings.Accounting || got.Last.Settings.MinJobAge != 5*time.Minute {
		t.Errorf("status shows %+v", got.Last)
	}
}
