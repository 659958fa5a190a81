package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Slurm 22.05.8's options, of which the bridge refuses some: sbatch --help, and the long names in
// src/common/slurm_opt.c.
func TestOptionsThatAreTheBridgesOwnAreRefusedWithTheirLine(t *testing.T) {
	t.Parallel()
	const before = "server = \"http://127.0.0.1:2900\"\nuser = \"ann\"\npassword_file = \"/p\"\nshared = \"/shared/cl-slurm\"\n[queue.cpu]\n"
	parse := func(option string) error {
		_, err := Parse(strings.NewReader(before + fmt.Sprintf("sbatch_options = [\n  \"--licenses=matlab\",\n  %q,\n]\n", option)))
		return err
	}
	for option, want := range map[string]string{
		"--clusters=north":     "--clusters is refused here: a bridge sees the jobs of one cluster",
		"--job-name=mine":      "--job-name is refused here: the bridge recognizes its jobs by it",
		"--comment":            "--comment is refused here: the bridge recognizes its jobs by it",
		"--array=1-3":          "--array is refused here: each submission of the bridge is one job",
		"--requeue":            "see retry_begun and max_attempts",
		"--no-requeue":         "see retry_begun and max_attempts",
		"--export=ALL":         "the bridge states the environment of its jobs",
		"--get-user-env":       "the bridge states the environment of its jobs",
		"--output=/dev/null":   "the bridge chooses the files of its jobs",
		"--error=/dev/null":    "the bridge chooses the files of its jobs",
		"--input=/dev/null":    "the bridge chooses the files of its jobs",
		"--open-mode=truncate": "the bridge chooses the files of its jobs",
		"--chdir=/":            "the bridge chooses the files of its jobs",
		"--parsable":           "sbatch has to answer with the job's number at once",
		"--test-only":          "sbatch has to answer with the job's number at once",
		"--wait":               "sbatch has to answer with the job's number at once",
		"--help":               "sbatch has to answer with the job's number at once",
		"--wrap=true":          "the bridge submits a script of its own",
		"--nodes=2":            "each job is one task on one node",
		"--ntasks=4":           "each job is one task on one node",
		"--hold":               "to bound the number of jobs, set max_in_flight",
		"--begin=20:00":        "to bound the number of jobs, set max_in_flight",
		"--dependency=1":       "to bound the number of jobs, set max_in_flight",
		"--uid=0":              "the bridge sees the jobs of its own user only",
		"--gid=0":              "the bridge sees the jobs of its own user only",
		"--signal=B:TERM@60":   "the worker keeps the time limit itself",
		"--partition=gpu":      "write it as the queue's partition",
		"--time=60":            "see default_time and max_time",
		"--comm=x":             "may be short for --comment, which is refused here",
		"--arr=1":              "may be short for --array, which is refused here",
		"--no":                 "may be short for --nodes, which is refused here",
		"--n=4":                "may be short for --nodes, which is refused here",
		"--exclud=n1":          "may be short for --exclude: write the option's whole name",
		"-p gpu":               "want options such as \"--licenses=matlab\"",
		"-Jmine":               "want options such as \"--licenses=matlab\"",
		"--":                   "want options such as \"--licenses=matlab\"",
		"--licenses matlab":    "want options such as \"--licenses=matlab\"",
		"":                     "want options such as \"--licenses=matlab\"",
	} {
		err := parse(option)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "line 8: queue.cpu.sbatch_options") {
			t.Errorf("%s: error %v, want line 8 with %q", option, err, want)
		}
	}
	for _, option := range []string{
		"--gres=lscratch:100", "--exclude=n1", "--nodelist=n[1-4]", "--nodefile=/n", "--no-kill", "--mem-per-cpu=4G", "--exclusive", "--mail-user=ann",
		"--gpu-bind=single:1", "--cluster-constraint=north", "--wait-all-nodes=1", "--ntasks-per-node=1", "--container=/oci", "--deadline=now+1day",
		"--cpus-per-task=8", "--nice=100", "--priority=TOP", "--propagate=MEMLOCK", "--kill-on-invalid-dep=yes", "--resources=x", "--quiet",
	} {
		if err := parse(option); err != nil {
			t.Errorf("%s: %v, want it taken", option, err)
		}
	}
}

// Each option has one reason.
func TestOptionsOfTheBridgeAreListedOnce(t *testing.T) {
	t.Parallel()
	var names []string
	for _, own := range ownOptions() {
		names = append(names, own.names...)
	}
	if slices.Sort(names); len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("twice in %q", names)
	}
}

// No snapshot of another cluster would show the jobs that are there.
func TestClusterWithJobsInFlightIsKept(t *testing.T) {
	t.Parallel()
	c := Config{Queue: map[string]*Queue{"cpu": {}}, Slurm: Slurm{Cluster: "north"}}
	row := plan.Row{Bundle: "0x1", Queue: "cpu", Phase: plan.Running}
	row.Job = sbatch.Job{ID: 7, Cluster: "north", Submitted: time.Unix(1_800_000_000, 0)}
	if err := c.CheckRows([]plan.Row{row}); err != nil {
		t.Error(err)
	}
	for _, other := range []string{"", "south"} {
		c.Slurm.Cluster = other
		if err := c.CheckRows([]plan.Row{row}); err == nil || !strings.Contains(err.Error(), `job 7 of bundle 0x1 is on "north": keep the cluster`) {
			t.Errorf("%q: %v", other, err)
		}
	}
	row.Phase = plan.Finalizing
	if err := c.CheckRows([]plan.Row{row}); err != nil {
		t.Errorf("its job has ended: %v", err)
	}
}
