package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// original is a flag of CodaLab's own cl-worker, version 1.7.3, with its default there; differs describes the
// difference of ours, empty for none.
type original struct{ name, byDefault, differs string }

// originals are the flags of codalab/worker/main.py: parse_args, in its order.
func originals() []original {
	return []original{
		{"tag", "", ""},
		{"server", "https://worksheets.codalab.org", "the default is `$CODALAB_SERVER`, or the server that `cl` uses; an alias of `cl alias` is understood"},
		{"ws-server", "the server's `/ws`", "changes nothing: a check-in is always open, and the server answers it at once"},
		{"work-dir", "codalab-worker-scratch", "[other files](#the-work-directory) in it"},
		{"network-prefix", "codalab_worker_network", "changes nothing: the worker makes no Docker networks"},
		{"cpuset", "ALL", "a list is obeyed; CodaLab's always takes all CPUs that the process may use"},
		{"gpuset", "ALL", "GPUs are found without Docker and without `nvidia-smi`; in a Slurm job, those of the job"},
		{"max-work-dir-size", "10g", ""},
		{"max-image-cache-size", "", "also bounds SIFs, where no Docker runs containers"},
		{"max-image-size", "", "holds for all runtimes"},
		{"max-memory", "", ""},
		{"password-file", "", ""},
		{"verbose", "", ""},
		{"exit-when-idle", "", ""},
		{"bundle-runtime", "docker", "the default is `auto`; the values are `auto`, `docker`, `apptainer`, `builtin`, `slurm` and [`kubernetes`](#pods-of-kubernetes)"},
		{"idle-seconds", "0", ""},
		{"checkin-frequency-seconds", "5", "the default is 0: the server holds a check-in until it has something to say. News is sent at once"},
		{"id", "HOST(PID)", "without it a worker takes the name of one that has ended on the host and left runs in the work directory"},
		{"shared-file-system", "", "each bundle is used in place if this host sees it, and else downloaded"},
		{"group", "", "a group that the server does not know, or without you, ends the worker"},
		{"tag-exclusive", "", ""},
		{"pass-down-termination", "", ""},
		{"delete-work-dir-on-exit", "", "not while another worker uses the directory, or runs are left in it"},
		{"exit-after-num-runs", "999999999", ""},
		{"exit-on-exception", "", "changes nothing: what can be tried again is tried again, and everything else ends the worker"},
		{"download-dependencies-max-retries", "3", ""},
		{"shared-memory-size-gb", "1", ""},
		{"preemptible", "", ""},
		{"kubernetes-cluster-host", "", "without it, the cluster is that of `kubectl`, or the one around the worker's pod"},
		{"kubernetes-auth-token", "", "works, with a warning: other users of the host can read it"},
		{"kubernetes-cert-path", "", "this or `--kubernetes-cert` is enough; without both, the system's authorities count"},
		{"kubernetes-cert", "", "as `--kubernetes-cert-path`"},
	}
}

// others are the flags that CodaLab's worker 1.7.3 does not have.
func others() []original {
	return []original{
		{"slots", "", "of CodaLab's workers until 2018: most runs at a time. The default was 1; here CPUs and memory are the limit"},
		{"bundle-service-url", "", "older name of `--server`"},
		{"max-dependencies-serialized-length", "", "of CodaLab's workers until 2019: changes nothing"},
		{"max-cpus", "", "ours: the CPUs for all runs together, where a container sees more than its own, as in AWS Batch. The default is `$CL_WORKER_MAX_CPUS`, or all"},
		{"max-processes", "", "ours: the most processes and threads of a run, 4096 by default, and 0 for no limit ([security.md](security.md#processes))"},
		{"bundle-network", "", "ours: the network of runs that request one: `request`, the default, one of their own; `host`, that of the host; `never`, none ([containers.md](containers.md#networks))"},
		{"stop-after", "", "ours: the worker ends within so many seconds, gives its runs back, and takes none that may last longer. The default is `$CL_WORKER_STOP_AFTER`, or the end of the Slurm job around the worker"},
		{"log-format", "", "ours: `text`, the default, or `json`: the form of the log's lines ([Logs as JSON](operators/monitoring.md#logs-as-json))"},
		{"fetch-private", "", "ours: images come from registries at public addresses only; others, such as `localhost:5000`, have to be named here, by host or network"},
		{"token-file", "", "ours: a worker token of cl-server instead of a password ([Login](#login)). The default is `$CODALAB_WORKER_TOKEN`"},
		{"kubernetes-namespace", "", "ours: the namespace of the runs' pods. The default is that of the kubeconfig's context, or of the worker's pod"},
		{"kubernetes-cpus", "", "ours: the CPUs of all runs together. The default is the number of CPUs of the worker's host"},
		{"kubernetes-gpus", "", "ours: the GPUs of all runs together, none by default"},
		{"kubernetes-gpu-resource", "", "ours: the name of GPUs in requests, `nvidia.com/gpu` by default"},
	}
}

// variable is one of the environment.
type variable struct{ name, verdict, meaning string }

// variables are those of CodaLab's worker, of its Docker images and of cl that begin with CODALAB_.
func variables() []variable {
	const (
		honoured = "honoured"
		ignored  = "ignored"
	)
	return []variable{
		{"CODALAB_USERNAME", honoured, "the user name, without `--password-file`"},
		{"CODALAB_PASSWORD", honoured, "the password, without `--password-file`"},
		{"CODALAB_WORKER_TOKEN", honoured, "ours: a token of cl-server, without `--token-file` and `--password-file` ([Login](#login))"},
		{"CODALAB_SERVER", honoured, "the server, without `--server`. CodaLab's worker does not read it; its `docker-compose` file does"},
		{"CODALAB_HOME", honoured, "the directory in which `cl` keeps the server that it uses, and aliases"},
		{"CODALAB_SESSION", honoured, "the session of `cl` whose server is used"},
		{"CODALAB_URLOPEN_TIMEOUT_SECONDS", ignored, "the worker bounds each call by what it does, and repeats it"},
		{"CODALAB_SENTRY_INGEST_URL", ignored, "nothing is reported to Sentry; the same holds for `CODALAB_SENTRY_ENVIRONMENT`, `CODALAB_SENTRY_TRANSACTION_RATE` and `CODALAB_SENTRY_PROFILES_RATE`"},
		{"CODALAB_SHARED_FILE_SYSTEM", ignored, "of `docker-compose` files: give `--shared-file-system`"},
		{"CODALAB_WORKER_DIR", ignored, "of `docker-compose` files: give `--work-dir`"},
		{"CODALAB_KUBERNETES_NODE_NAME", ignored, "the worker does not offer the node's resources, but those of its flags"},
		{"CODALAB_CONFIG", ignored, "another file of `cl`; also `CODALAB_STATE`"},
	}
}

// tables are those of docs/worker.md.
func tables() string {
	var text strings.Builder
	text.WriteString("| flag | CodaLab's default | | |\n|---|---|---|---|\n")
	for _, f := range originals() {
		verdict := "same"
		switch {
		case strings.HasPrefix(f.differs, "refused"):
			verdict = "refused"
		case f.differs != "":
			verdict = "differs"
		}
		fmt.Fprintf(&text, "| `--%s` | %s | %s | %s |\n", f.name, f.byDefault, verdict, strings.TrimPrefix(f.differs, "refused: "))
	}
	text.WriteString("\n| flag that CodaLab's worker 1.7.3 does not have | |\n|---|---|\n")
	for _, f := range others() {
		fmt.Fprintf(&text, "| `--%s` | %s |\n", f.name, f.differs)
	}
	text.WriteString("\n| variable | | |\n|---|---|---|\n")
	for _, v := range variables() {
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", v.name, v.verdict, v.meaning)
	}
	return text.String()
}

// TestEveryFlagOfCodaLabsWorkerIsThere compares the flags and their defaults with the tables.
func TestEveryFlagOfCodaLabsWorkerIsThere(t *testing.T) {
	t.Parallel()
	flags := newRoot(program.Process{}).Flags()
	known := map[string]bool{"help": true, "version": true}
	for _, o := range append(originals(), others()...) {
		known[o.name] = true
		f := flags.Lookup(o.name)
		switch {
		case f == nil:
			t.Errorf("there is no --%s", o.name)
		case o.differs == "" && o.byDefault != "" && f.DefValue != o.byDefault:
			t.Errorf("the default of --%s is %s, and CodaLab's %s", o.name, f.DefValue, o.byDefault)
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if !known[f.Name] {
			t.Errorf("--%s is in no table", f.Name)
		}
	})
}

// The tables in docs/worker.md are between these lines.
const (
	tablesBegin = "<!-- go test ./cmd/cl-worker -update writes the tables -->\n"
	tablesEnd   = "<!-- the end of the tables -->\n"
)

// TestTablesAreUpToDate compares docs/worker.md with the tables; -update writes them.
func TestTablesAreUpToDate(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "docs", "worker.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(page), tablesBegin)
	found, after, ended := strings.Cut(rest, tablesEnd)
	if !begun || !ended {
		t.Fatalf("%s has no place for the tables", file)
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+tablesBegin+tables()+tablesEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if found != tables() {
		t.Errorf("%s is not what the tables say; write it with: go test ./cmd/cl-worker -update", file)
	}
}

// TestVariablesAreReadAsTheTableSays asks which variables set a server and a login.
func TestVariablesAreReadAsTheTableSays(t *testing.T) {
	t.Parallel()
	honoured := map[string]bool{}
	for _, v := range variables() {
		honoured[v.name] = v.verdict == "honoured"
	}
	asked := map[string]bool{}
	_ = run(t.Context(), program.Process{Args: []string{"--work-dir", t.TempDir()}, Getenv: func(name string) string {
		asked[name] = true
		if name == "CODALAB_PASSWORD" || name == "CODALAB_USERNAME" {
			return "x"
		}
		return map[string]string{"CL_SERVER": "no address"}[name]
	}})
	for name, is := range honoured {
		if asked[name] != is {
			t.Errorf("%s is read: %v; the table says honoured: %v", name, asked[name], is)
		}
	}
	for name := range asked {
		if _, there := honoured[name]; !there && strings.HasPrefix(name, "CODALAB_") {
			t.Errorf("%s is in no table", name)
		}
	}
}

// TestUnitLeavesRunsAloneAndStartsNoRefusedWorkerAgain reads scripts/cl-worker.service, and the lines of it in
// docs/worker.md.
func TestUnitLeavesRunsAloneAndStartsNoRefusedWorkerAgain(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile(filepath.Join("..", "..", "scripts", "cl-worker.service"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "worker.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "```\n[Service]\n")
	shown, _, _ = strings.Cut(shown, "```")
	lines := strings.Split(string(unit), "\n")
	for _, line := range append(strings.Split(strings.TrimSpace(shown), "\n"),
		"KillMode=process", fmt.Sprintf("RestartPreventExitStatus=%d %d", program.ExitUsage, program.ExitDenied)) {
		if !slices.Contains(lines, line) {
			t.Errorf("the unit has no line %q", line)
		}
	}
}
