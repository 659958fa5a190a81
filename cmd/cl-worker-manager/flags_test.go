package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// original is a flag of CodaLab's own cl-worker-manager, version 1.7.3, with its default there; differs
// describes the difference of ours, empty for none.
type original struct{ name, byDefault, differs string }

// managerFlags are those of codalab/worker_manager/main.py.
func managerFlags() []original {
	return []original{
		{"server", "https://worksheets.codalab.org", "the default is `$CODALAB_SERVER`, or the server that `cl` uses"},
		{"temp-session", "", "changes nothing: the manager writes no session"},
		{"min-workers", "1", ""},
		{"max-workers", "10", ""},
		{"search", "", "the words end at the next flag or at `slurm-batch`; CodaLab's takes `slurm-batch` for a word, too"},
		{"verbose", "", "logs why bundles are left out; CodaLab's logs that always, at each look"},
		{"log-format", "", "ours: `text`, the default, or `json`: the form of the log's lines ([Logs as JSON](operators/monitoring.md#logs-as-json))"},
		{"metrics-listen", "", "ours: an address for `/metrics` ([Metrics of a worker manager](operators/monitoring.md#metrics-of-a-worker-manager))"},
		{"metrics-file", "", "ours: a file for node_exporter with the same"},
		{"sleep-time", "5", "the default is 1"},
		{"restart-after-seconds", "", "changes nothing: it works around a leak of file descriptors, which this program does not have"},
		{"no-prefilter", "", "the filter knows the time, the queue and the tag, too; without it a bundle that is too large gets one worker, and not one after the other"},
		{"once", "", "CodaLab's goes on all the same; here the exit code says whether the look, and the start of each missing worker, was successful"},
		{"min-seconds-between-workers", "60", "the default is 0; one look starts all workers that are needed, and CodaLab's one"},
		{"worker-tag", "", ""},
		{"worker-work-dir-prefix", "", "`-worker-work-dir-prefix` of older pages is read, too; a relative path is one of the directory in which the manager was started"},
		{"worker-max-work-dir-size", "", ""},
		{"worker-delete-work-dir-on-exit", "", ""},
		{"worker-idle-seconds", "600", ""},
		{"worker-download-dependencies-max-retries", "3", ""},
		{"worker-checkin-frequency-seconds", "", ""},
		{"worker-exit-after-num-runs", "", "such a worker counts as room for so many bundles"},
		{"worker-pass-down-termination", "", "changes nothing: it is always set, as CodaLab's slurm-batch does"},
		{"worker-exit-on-exception", "", ""},
		{"worker-tag-exclusive", "", ""},
		{"worker-group", "", ""},
		{"worker-executable", "cl-worker", "without a slash it is looked for on the manager's host: in the manager's directory, then in `PATH`"},
		{"worker-shared-memory-size-gb", "", ""},
		{"worker-bundle-network", "", "ours: the workers' `--bundle-network` ([worker.md](worker.md#flags))"},
		{"worker-preemptible", "", "in a cloud it is always set, because a cloud may take a worker's machine at any time"},
		{"worker-image", "", "ours, for workers in a cloud; CodaLab's takes `codalab/worker:$CODALAB_VERSION`, which needs Docker's socket"},
		{"worker-log-format", "", "ours: the `--log-format` of the workers, which must be cl-slurm's"},
		{"worker-fetch-private", "", "ours: the `--fetch-private` of the workers, which must be cl-slurm's"},
	}
}

// slurmFlags are those of codalab/worker_manager/slurm_batch_worker_manager.py.
func slurmFlags() []original {
	return []original{
		{"job-name", "codalab-slurm-worker", "only jobs are the manager's whose names are `<user>-<job name>-<32 digits>`; CodaLab's takes all that contain it"},
		{"nodelist", "", ""},
		{"exclude", "", ""},
		{"partition", "", "may be left out: the site's default"},
		{"cpus", "1", ""},
		{"gpus", "1", "0 where the partition has no GPUs and the flag is not given; 0 asks Slurm for none"},
		{"gpu-type", "", ""},
		{"constraint", "", ""},
		{"memory-mb", "2048", ""},
		{"time", "10-0", "at most what the partition allows; CodaLab's job would wait for ever"},
		{"dry-run", "", "prints one job with its sbatch command, and ends; CodaLab's goes on"},
		{"user", "the user", "another user is refused: CodaLab's would look for that user's jobs and submit its own"},
		{"password-file", "", "refused if others may read it; for the workers only where they get no token; without it the manager writes one for those, and CodaLab's passes the password in the job's environment"},
		{"token-file", "", "ours: a token of cl-server instead of the password"},
		{"slurm-work-dir", "slurm-worker-scratch", ""},
		{"exit-after-num-failed", "", "counts refused submissions and all jobs that ended before their worker reached the server; CodaLab's counts jobs in state FAILED. The exit code is 1, in CodaLab's 0"},
		{"account", "nlp", "the default is the site's"},
	}
}

// awsFlags are those of codalab/worker_manager/aws_batch_worker_manager.py.
func awsFlags() []original {
	return []original{
		{"region", "us-east-1", ""},
		{"job-definition-name", "codalab-worker", "a new revision only if none has the same content; CodaLab's registers one for each worker"},
		{"user", "root", ""},
		{"job-queue", "codalab-batch-cpu", ""},
		{"job-filter", "", "the jobs of the queue count whose whole names match, and always the manager's own; without the flag CodaLab's counts all jobs of the queue"},
		{"worker-secret", "", "ours: the login of workers of servers without worker tokens; CodaLab's writes the password into the job definition"},
		{"execution-role", "", "ours: for `--worker-secret`, and for images in a private registry"},
	}
}

// azureFlags are those of codalab/worker_manager/azure_batch_worker_manager.py.
func azureFlags() []original {
	return []original{
		{"account-name", "", "the default is `$AZURE_BATCH_ACCOUNT`; not needed for a login at Entra"},
		{"account-key", "", "need not be given; a warning says that others can read it"},
		{"account-key-file", "", "ours: a file with the key, instead of a key on the command line"},
		{"service-url", "", "the default is `$AZURE_BATCH_ENDPOINT`"},
		{"log-container-url", "", "may be left out; standard output is kept, too; the default is `$CL_AZURE_LOG_CONTAINER_URL`"},
		{"job-id", "", ""},
		{"user", "root", ""},
		{"task-slots", "1", "ours: the `requiredSlots` of a task"},
		{"container-options", "", "ours: for pools that need other options of `docker create`"},
		{"worker-password-file", "", "ours: for servers without worker tokens; CodaLab's writes the password into the task, where the portal shows it"},
	}
}

// kubernetesFlags are those of codalab/worker_manager/kubernetes_worker_manager.py.
func kubernetesFlags() []original {
	return []original{
		{"bundle-runtime", "docker", "docker means in the worker's own pod, with `cl-worker`'s own runtime; no pod has Docker's socket"},
		{"cluster-host", "", "may be left out where kubectl finds the cluster, or in a pod with a service account"},
		{"auth-token", "", "other users of the host can see it, and a warning says so; workers do not get it"},
		{"auth-token-file", "", "ours: a file with the token, which is read again when it changes"},
		{"cert-path", "", "one of `--cert-path` and `--cert` is enough, and none is needed where the system knows the authority; CodaLab's requires both"},
		{"cert", "", "as `--cert-path`; `\\n` may stand for the end of a line"},
		{"kubeconfig", "", "ours"},
		{"context", "", "ours"},
		{"namespace", "", "ours; CodaLab's is always default"},
		{"nfs-volume-name", "", "the claim is mounted at `--worker-work-dir-prefix`, and CodaLab's at the work directory below it"},
		{"work-dir-size", "", "ours; without a volume CodaLab's has the work directory on the node's disk (hostPath)"},
		{"node-selector", "", "ours"},
		{"toleration", "", "ours"},
		{"gpu-resource", "", "ours; CodaLab's is always nvidia.com/gpu"},
		{"device-resource", "", "ours"},
		{"seccomp-unconfined", "", "ours"},
		{"service-account", "", "ours"},
		{"priority-class", "", "ours"},
		{"image-pull-secret", "", "ours"},
	}
}

// flagTable is a table of flags. command is the command whose flags they are, empty for the program itself.
type flagTable struct {
	title, command string
	flags          []original
}

// allFlags are the tables of docs/worker-managers.md.
func allFlags() []flagTable {
	return []flagTable{
		{"before the name of a manager", "", managerFlags()},
		{"after `slurm-batch`", "slurm-batch", slurmFlags()},
		{"after `aws-batch`", "aws-batch", append(awsFlags(), cloudFlags()...)},
		{"after `azure-batch`", "azure-batch", append(azureFlags(), cloudFlags()...)},
		{"after `kubernetes`", "kubernetes", append(kubernetesFlags(), cloudFlags()...)},
	}
}

func flagTables() string {
	var text strings.Builder
	for _, part := range allFlags() {
		fmt.Fprintf(&text, "| %s | CodaLab's default | | |\n|---|---|---|---|\n", part.title)
		for _, f := range part.flags {
			verdict := "same"
			if f.differs != "" {
				verdict = "differs"
			}
			fmt.Fprintf(&text, "| `--%s` | %s | %s | %s |\n", f.name, f.byDefault, verdict, f.differs)
		}
		text.WriteString("\n")
	}
	return text.String()
}

// TestEveryFlagOfCodaLabsManagerIsThere compares the flags and their defaults with the tables.
func TestEveryFlagOfCodaLabsManagerIsThere(t *testing.T) {
	t.Parallel()
	root := newRoot(program.Process{Getenv: func(string) string { return "" }})
	covered := map[string]bool{}
	for _, part := range allFlags() {
		covered[part.command] = true
		flags := root.Flags()
		if part.command != "" {
			cmd, _, err := root.Find([]string{part.command})
			if err != nil {
				t.Fatal(err)
			}
			flags = cmd.Flags()
			flags.AddFlagSet(cmd.PersistentFlags())
		}
		compareFlags(t, part, flags)
	}
	for _, cmd := range root.Commands() {
		if hides := cmd.Hidden || !strings.Contains(cmd.Name(), "-") && cmd.Name() != "kubernetes"; !hides && !covered[cmd.Name()] {
			t.Errorf("the flags of %s are in no table", cmd.Name())
		}
	}
}

// compareFlags compares the flags of a command, and their defaults, with a table.
func compareFlags(t *testing.T, table flagTable, flags *pflag.FlagSet) {
	t.Helper()
	known := map[string]bool{"help": true, "version": true}
	for _, o := range table.flags {
		known[o.name] = true
		f := flags.Lookup(o.name)
		switch {
		case f == nil:
			t.Errorf("%s: there is no --%s", table.title, o.name)
		case o.differs == "" && o.byDefault != "" && f.DefValue != o.byDefault:
			t.Errorf("%s: the default of --%s is %s, and CodaLab's %s", table.title, o.name, f.DefValue, o.byDefault)
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if !known[f.Name] {
			t.Errorf("%s: --%s is in no table", table.title, f.Name)
		}
	})
}

// cloudFlags are the flags that all clouds have. CodaLab's AWS and Azure managers call memory, CPUs and GPUs the same.
func cloudFlags() []original {
	return []original{
		{"cpus", "1", ""},
		{"gpus", "0", ""},
		{"memory-mb", "2048", ""},
		{"manager-name", "", "ours: only workers with this name in their own name or label are the manager's"},
		{"password-file", "", "ours: the manager's login; CodaLab's reads `CODALAB_USERNAME` and `CODALAB_PASSWORD`, which are read here, too"},
		{"token-file", "", "ours: a token of cl-server instead of the password"},
		{"dry-run", "", "ours"},
		{"check", "", "ours"},
		{"exit-after-num-failed", "", "ours, as in slurm-batch"},
	}
}

func TestCloudsHaveTheFlagsThatAllOfThemHave(t *testing.T) {
	t.Parallel()
	m := &manager{Process: program.Process{Getenv: func(string) string { return "" }}}
	for _, s := range services() {
		cmd := m.cloudCommand(s)
		for _, o := range cloudFlags() {
			if cmd.PersistentFlags().Lookup(o.name) == nil {
				t.Errorf("%s: there is no --%s", cmd.Name(), o.name)
			}
		}
	}
}

// The tables in docs/worker-managers.md are between these lines.
const (
	tablesBegin = "<!-- go test ./cmd/cl-worker-manager -update writes the tables -->\n"
	tablesEnd   = "<!-- the end of the tables -->\n"
)

// TestFlagTablesAreUpToDate compares docs/worker-managers.md with the tables; -update writes them.
func TestFlagTablesAreUpToDate(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "docs", "worker-managers.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(page), tablesBegin)
	tables, after, ended := strings.Cut(rest, tablesEnd)
	if !begun || !ended {
		t.Fatalf("%s has no place for the tables", file)
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+tablesBegin+flagTables()+tablesEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if tables != flagTables() {
		t.Errorf("%s is not what the tables say; write it with: go test ./cmd/cl-worker-manager -update", file)
	}
}
