package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// watch starts a manager in a directory, in which Slurm's commands are scripts.
func watch(t *testing.T, dir string, args ...string) *testenv.Logging {
	t.Helper()
	bin := filepath.Join(dir, "slurm")
	writeSlurmCommands(t, bin)
	cmd := exec.Command("cl-worker-manager", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir, "SLURM_CONF=", "CODALAB_USERNAME=ann", "CODALAB_PASSWORD=secret")
	return testenv.StartLogging(t, cmd, "secret")
}

func TestOperatorSeesWhyNoWorkerIsStarted(t *testing.T) {
	t.Parallel()
	web := startServer(t, filepath.Join(t.TempDir(), "server"))
	api := connectAnn(t, web.URL)
	stage(t, api, 1, nil)
	left := stage(t, api, 1, codalab.Metadata{"request_cpus": int64(8)})[0]
	dir := t.TempDir()
	file := filepath.Join(dir, "manager.prom")
	testenv.Must(t, os.Mkdir(filepath.Join(dir, "slurm"), 0o755))
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "slurm", "refuse"), nil, 0o600))
	m := watch(t, dir, "--server", web.URL, "--log-format", "json", "--metrics-listen", "127.0.0.1:0", "--metrics-file", file, "slurm-batch", "--job-name", "lab")
	address, _ := m.AwaitLine(t, "serving metrics", "")["address"].(string)
	var page string
	see := func(what string, samples ...string) {
		t.Helper()
		testenv.Await(t, what, func() bool {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
			testenv.Must(t, err)
			answer, err := http.DefaultClient.Do(r)
			testenv.Must(t, err)
			body, err := io.ReadAll(answer.Body)
			testenv.Must(t, errors.Join(err, answer.Body.Close()))
			page = string(body)
			for _, sample := range samples {
				if !strings.Contains(page, sample) {
					return false
				}
			}
			return true
		}, &page)
	}
	const labels = `{backend="slurm-batch",`
	me, err := user.Current()
	testenv.Must(t, err)
	see("the refusal is there", `kind="starts_refused",manager="`+me.Username+`-lab"} 1`, `lack="cpus"`)
	if strings.Contains(page, `result="refused"} 0`) {
		t.Errorf("no refused start in\n%s", page)
	}
	for _, part := range []string{
		"cl_worker_manager_workers_max" + labels, "cl_worker_manager_build_info" + labels, "cl_worker_manager_slurm_call_duration_seconds_count" + labels + `command="squeue"`,
		`-lab",tag=""} 1`, `-lab",state="pending"} 0`,
	} {
		if !strings.Contains(page, part) {
			t.Errorf("no %s in\n%s", part, page)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "cl_worker_manager_build_info"+labels) {
		t.Errorf("the file for node_exporter: %v\n%s", err, text)
	}
	if line := m.AwaitLine(t, "cannot start a worker", ""); line["level"] != "WARN" || !strings.Contains(line["error"].(string), "Invalid account") || !strings.HasSuffix(line["again"].(string), "Z") {
		t.Errorf("%v", line)
	}
	if line := m.AwaitLine(t, "bundle left out", ""); line["bundle"] != left {
		t.Errorf("%v", line)
	}
	testenv.Must(t, os.Remove(filepath.Join(dir, "slurm", "refuse")))
	see("the worker runs", `result="accepted"} 1`, `state="starting"} 1`)
	name, _ := m.AwaitLine(t, "started a worker", "")["worker"].(string)
	if id := strings.TrimPrefix(name, "host-"); !pilot.IsID(pilot.ID(id)) || id == name {
		t.Errorf("the worker's id is %s", name)
	}
	testenv.Must(t, m.Process.Signal(syscall.SIGTERM))
	m.AwaitLine(t, "ended: workers go on", "")
	testenv.Await(t, "the file goes with the manager", func() bool {
		_, err := os.Stat(file)
		return errors.Is(err, os.ErrNotExist)
	}, nil)
}

// The reason for which a program ends is a line of its log, too.
func TestErrorThatEndsAManagerIsItsLastLine(t *testing.T) {
	t.Parallel()
	m := watch(t, t.TempDir(), "--server", "http://127.0.0.1:1", "--log-format", "json", "--once", "slurm-batch")
	if line := m.AwaitLine(t, "the program ends", ""); !strings.Contains(line["error"].(string), "127.0.0.1:1") || line["level"] != "ERROR" {
		t.Errorf("%v", line)
	}
}

func TestMetricsThatNobodyCouldReadAreRefused(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`--metrics-listen "9465": want an address such as 127.0.0.1:9465`:                                   {"--metrics-listen", "9465"},
		`--metrics-file "m.txt": want a file whose name ends in .prom, since node_exporter reads no others`: {"--metrics-file", "m.txt"},
		"--once ends before anybody reads metrics: leave out --metrics-listen and --metrics-file":           {"--once", "--metrics-file", "m.prom"},
	} {
		if _, err := runHere(t, nil, append(args, "slurm-batch")...); err == nil || err.Error() != want {
			t.Errorf("%v: error %v", args, err)
		}
	}
}
