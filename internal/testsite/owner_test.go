package testsite_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// The bridge signs in with a worker account, as on a cluster with one service account. researcher is in the group nlp.
func TestOwnersJobsHaveTheAccountOfTheTableAndTheirNames(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{
		WorkerAccount: true,
		Config: `
[[map]]
users = ["*"]
queues = ["closed"]
refuse = "Ask hpc@example.org for a Slurm account"

[[map]]
groups = ["nlp"]
account = "nlp"
qos = "limited"
wckey = "proj1"
nice = 7
`,
		Queues: "[queue.cpu]\npartition = \"cpu\"\naccount = \"lab\"\ndefault_time = \"10m\"\n[queue.closed]\npartition = \"cpu\"\naccount = \"lab\"\n",
	})
	stranger := run(t, s, "cpu", "true")
	ready(t, s, stranger)
	cl(t, s, "gnew", "nlp")
	hostile := cl(t, s, "run", "--request-queue", "cpu", "--name", "x"+strings.Repeat("-.y", 70), `echo "a|b"`)
	refused := run(t, s, "closed", "true")
	ready(t, s, hostile)
	if state := ended(t, s, refused); state != "failed" || field(t, s, refused, "failure_message") != "Ask hpc@example.org for a Slurm account." {
		t.Errorf("%s: %s", state, field(t, s, refused, "failure_message"))
	}
	for bundle, want := range map[string][]string{stranger: {"lab", "normal", ""}, hostile: {"nlp", "limited", "proj1"}} {
		var job []string
		testenv.Await(t, "the accounts show "+bundle, func() bool {
			out := must(t, s, "sacct", "--allocations", "--parsable2", "--noheader", "--format=JobName,Comment,State,Account,QOS,WCKey")
			for line := range strings.Lines(out) {
				if strings.Contains(line, "-"+bundle[2:14]+".1-") {
					job = strings.Split(strings.TrimSuffix(line, "\n"), "|")
				}
			}
			return job != nil && job[2] == "COMPLETED"
		})
		t.Logf("sacct prints %q", job)
		if len(job) != 6 || !strings.HasPrefix(job[0], "cl-researcher-") || !strings.Contains(job[1], " login=researcher name=") || !slices.Equal(job[3:5], want[:2]) || want[2] != "" && job[5] != want[2] {
			t.Errorf("sacct prints %q, want %q", job, want)
		}
	}
}

func TestQueueGivesCommandsItsVariablesAndDirectories(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for _, err := range []error{
		os.Chmod(data, 0o755), os.Chmod(filepath.Dir(data), 0o755), os.WriteFile(filepath.Join(data, "model"), []byte("weights"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := own(t, testsite.Options{Queues: "[queue.cpu]\npartition = \"cpu\"\naccount = \"lab\"\ndefault_time = \"10m\"\nbinds = [\"" + data + ":/hf\"]\n" +
		"[queue.cpu.environment]\nHF_HOME = \"/hf\"\nODD = '$(id) \"quoted\" é'\n"})
	bundle := run(t, s, "cpu", `cat "$HF_HOME/model"; echo; printf '%s\n' "$ODD"; touch /hf/x 2>/dev/null || echo read-only`)
	ready(t, s, bundle)
	if got, want := cl(t, s, "cat", bundle+"/stdout"), "weights\n$(id) \"quoted\" é\nread-only"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
