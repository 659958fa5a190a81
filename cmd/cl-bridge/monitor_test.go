package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// watchedBridge is a running bridge with a log in JSON.
type watchedBridge struct {
	*testenv.Logging
	site twinSite
}

// watch starts a bridge on a site, after some texts were added to its configuration.
func watch(t *testing.T, before string) watchedBridge {
	t.Helper()
	b := watchedBridge{site: newTwinSite(t)}
	b.edit(t, "server = ", before+"server = ")
	cmd := exec.Command("cl-bridge", "run", "--config", b.site.config, "--log-format", "json", "--metrics-listen", "127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // as a service, without a terminal
	b.Logging = testenv.StartLogging(t, cmd)
	return b
}

// edit replaces a text in the configuration.
func (b watchedBridge) edit(t *testing.T, old, with string) {
	t.Helper()
	text, err := os.ReadFile(b.site.config)
	testenv.Must(t, err)
	testenv.Must(t, os.WriteFile(b.site.config, []byte(strings.Replace(string(text), old, with, 1)), 0o600))
}

func (b watchedBridge) hangUp(t *testing.T) {
	t.Helper()
	testenv.Must(t, b.Process.Signal(syscall.SIGHUP))
}

// bridgeLabel is the first label of each metric: several bridges of a host may write files for its node_exporter.
var bridgeLabel = regexp.MustCompile(`\{bridge="[^"]+",?`)

func TestBridgeServesAndWritesItsMetrics(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cl-bridge.prom")
	b := watch(t, "metrics_file = \""+file+"\"\n")
	address, _ := b.AwaitLine(t, "serving metrics", "")["address"].(string)
	var page string
	testenv.Await(t, "the metrics show an answered check-in and an answer of Slurm", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		testenv.Must(t, err)
		answer, err := http.DefaultClient.Do(r)
		testenv.Must(t, err)
		body, err := io.ReadAll(answer.Body)
		testenv.Must(t, errors.Join(err, answer.Body.Close()))
		page = bridgeLabel.ReplaceAllString(string(body), "{")
		return strings.Contains(page, `cl_bridge_check_in_answered_timestamp_seconds{queue="cpu"}`) &&
			strings.Contains(page, `cl_bridge_obstacle{kind="slurm_not_seen"} 0`)
	}, &page)
	for _, want := range []string{
		`cl_bridge_bundles{phase="queued",queue="cpu"} 0`, `cl_bridge_build_info{`, `cl_bridge_slurm_call_duration_seconds_count{command="squeue"}`,
		`cl_bridge_slurm_call_failures_total{command="squeue"}`, `cl_bridge_submissions_total{queue="cpu",result="accepted"} 0`, "process_open_fds", "go_goroutines",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "cl_bridge_build_info{bridge=") || strings.Contains(string(text), "go_goroutines") {
		t.Errorf("the file for node_exporter: %v\n%s", err, text)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("node_exporter cannot read the file: %v, %v", info, err)
	}
	testenv.Must(t, b.Process.Signal(syscall.SIGTERM))
	testenv.Await(t, "the file goes with the bridge", func() bool {
		_, err := os.Stat(file)
		return errors.Is(err, os.ErrNotExist)
	}, nil)
}

func TestReloadTellsWhatHasChangedOrWhyNot(t *testing.T) {
	t.Parallel()
	b := watch(t, "max_attempts = 3\n")
	b.AwaitLine(t, "started", "")
	b.edit(t, "[queue.cpu]", "[[map]]\nusers = [\"*\"]\nnice = 7\n[queue.gpu]\npartition = \"gpu\"\n[queue.cpu]\nmax_time = \"2d\"")
	b.edit(t, "max_attempts = 3", "max_attempts = 4\ndisk_settle = \"20s\"")
	b.hangUp(t)
	for key, want := range map[string]string{
		"queue.gpu": "queue.gpu is new: a queue", "queue.cpu.max_time": "queue.cpu.max_time: none → 2d", "max_attempts": "max_attempts: 3 → 4",
		"map": "map: none → *: nice 7",
	} {
		if line := b.AwaitLine(t, "a key has changed", key); line["change"] != want {
			t.Errorf("%v, want %q", line, want)
		}
	}
	b.AwaitLine(t, "a key has changed that a running bridge does not follow: start the bridge again", "disk_settle")

	b.edit(t, "[queue.gpu]", "[queue.gpu")
	b.hangUp(t)
	line := b.AwaitLine(t, "the configuration was read again and refused; nothing has changed", "")
	if words, _ := line["error"].(string); !strings.Contains(words, "bridge.toml: line ") {
		t.Errorf("%v", line)
	}
	b.edit(t, "[queue.gpu", "[queue.gpu]")
	var status heartbeat.Status
	testenv.Await(t, "status shows the refusal and both queues", func() bool {
		status = heartbeat.Status{}
		out, _ := exec.Command("cl-bridge", "status", "--json", "--config", b.site.config).Output() // its exit code may tell of the obstacle
		testenv.Must(t, json.Unmarshal(out, &status))
		return len(status.Queues) == 2 && strings.Contains(strings.Join(status.Holds, " "), "The bridge goes on with the configuration that it had")
	}, &status)
	b.hangUp(t)
	testenv.Await(t, "status shows no refusal", func() bool {
		status = heartbeat.Status{}
		out, _ := exec.Command("cl-bridge", "status", "--json", "--config", b.site.config).Output()
		testenv.Must(t, json.Unmarshal(out, &status))
		return status.Last != nil && status.Last.Refused == ""
	}, &status)
}

// A file that was opened after the start would let another user choose the programs and accounts of the next jobs.
func TestReloadRefusesAConfigurationThatOthersCanWrite(t *testing.T) {
	t.Parallel()
	b := watch(t, "max_attempts = 3\n")
	b.AwaitLine(t, "started", "")
	b.edit(t, "max_attempts = 3", "max_attempts = 4")
	testenv.Must(t, os.Chmod(b.site.config, 0o666))
	b.hangUp(t)
	line := b.AwaitLine(t, "the configuration was read again and refused; nothing has changed", "")
	if words, _ := line["error"].(string); !strings.Contains(words, "everybody can write to") {
		t.Errorf("%v", line)
	}
	testenv.Must(t, os.Chmod(b.site.config, 0o600))
	b.hangUp(t)
	b.AwaitLine(t, "a key has changed", "max_attempts")
}
