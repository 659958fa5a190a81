package realsite_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestRunWithADependencyEndsReady(t *testing.T) {
	s := realSite(t)
	input := strings.TrimSpace(s.on(t, login, client+"printf '3\\n1\\n2\\n' >in && cl upload in"))
	first := s.run(t, "grep -v 1 in >kept; hostname", "in:"+input)
	second := s.run(t, "cat first/kept", "first:"+first)
	s.ready(t, first)
	s.ready(t, second)
	if got := s.cl(t, "cat", second+"/stdout"); got != "3\n2" {
		t.Errorf("stdout %q", got)
	}
}

func TestDoctorFindsNothingWrong(t *testing.T) {
	s := realSite(t)
	said, err := s.try(t.Context(), login, "cl-bridge doctor 2>&1") // it fails for the GPUs
	said = withoutGPUs(said)
	if err == nil || strings.Contains(said, "failed ") || strings.Contains(said, "warning ") {
		t.Error("doctor finds something wrong")
	}
	for _, want := range []string{
		"ok +login: ", `ok +queue\.main\.job: job \d+ ran on `, "ok +shared: files made here appear on ",
		`ok +node\.[\w-]+\.locks-between-hosts: flock and fcntl on .* exclude programs of other hosts`, `ok +node\.[\w-]+\.mount: .* is on nfs4`,
		`ok +queue\.main\.runtime: .* runs containers by builtin`, `ok +queue\.main\.memory: .* keeps memory limits by the job's cgroup`,
	} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(said) {
			t.Errorf("no line %q", want)
		}
	}
	if t.Failed() {
		t.Log(said)
	}
}

func TestFiftyRunsAtOnceAllEndReady(t *testing.T) {
	s := realSite(t)
	began := time.Now()
	bundles := s.runs(t, 50, func(i int) string { return fmt.Sprintf("echo run %d", i) })
	printed := map[string]bool{}
	for _, bundle := range bundles {
		s.ready(t, bundle)
		printed[s.cl(t, "cat", bundle+"/stdout")] = true
		if jobs := s.jobs(t, bundle); len(jobs) != 1 {
			t.Errorf("the jobs of %s are %v, want one", bundle, jobs)
		}
	}
	t.Logf("50 runs took %s", time.Since(began).Round(time.Second))
	for i := range bundles {
		if want := fmt.Sprintf("run %d", i); !printed[want] {
			t.Errorf("no bundle printed %q", want)
		}
	}
}

// The kernel enforces the limit, by cgroup v2, and Slurm's and the bundle's messages name
// it.
func TestMemoryLimitOfTheNodesKernelIsTheVerdict(t *testing.T) {
	s := realSite(t)
	bundle := s.run(t, "dd if=/dev/zero of=/dev/null bs=200M count=1", "--request-memory", "64m")
	if state := s.ended(t, bundle); state != "failed" {
		t.Errorf("state %s, want failed", state)
	}
	if got := s.field(t, bundle, "failure_message"); !strings.Contains(got, "Memory limit 64m exceeded") {
		t.Errorf("failure_message %q", got)
	}
	await(t, "Slurm calls the job OUT_OF_MEMORY", func() bool {
		jobs := s.jobs(t, bundle)
		return len(jobs) == 1 && jobs[0].state == "OUT_OF_MEMORY"
	})
}

// Slurm's OOMKillStep (slurm.conf(5): TaskPluginParam, from 23.11 on) sets memory.oom.group of the step, which only cgroup v2
// has: then the kernel ends the worker with the command, and the worker leaves no record of the end. This site's Slurm
// is older, so root sets it.
func TestMemoryLimitThatAlsoEndsTheWorkerIsTheVerdict(t *testing.T) {
	s := realSite(t)
	bundle := s.run(t, `read at </proc/self/cgroup; at=/sys/fs/cgroup${at#0::}; at=${at%/user/*}
until grep -q 1 $at/memory.oom.group; do sleep 0.1; done
dd if=/dev/zero of=/dev/null bs=200M count=1; echo the command goes on`, "--request-memory", "64m")
	node := s.node(t, bundle)
	job := s.on(t, login, "squeue --me --noheader --states=running --format=%i")
	s.on(t, "root@"+node, "echo 1 >/sys/fs/cgroup/system.slice/"+node+"_slurmstepd.scope/job_"+job+"/step_batch/memory.oom.group")
	if state := s.ended(t, bundle); state != "failed" {
		t.Errorf("state %s, want failed", state)
	}
	if got := s.field(t, bundle, "failure_message"); !strings.Contains(got, "Memory limit 64m exceeded") {
		t.Errorf("failure_message %q", got)
	}
	if got := s.cl(t, "cat", bundle+"/stdout"); got != "" {
		t.Errorf("stdout %q", got)
	}
}

// A bundle's own network: other machines are in reach, and the node's own services are not. sshd listens on all addresses
// of the node.
func TestBundleReachesOtherMachinesAndNotItsNodesServices(t *testing.T) {
	s := realSite(t)
	bundle := s.run(t, "grep -o tap0: /proc/net/dev; nc -w 5 10.78.0.3 22 </dev/null | head -c 4; echo; nc -w 5 127.0.0.1 22 </dev/null || echo refused")
	s.ready(t, bundle)
	if got := s.cl(t, "cat", bundle+"/stdout"); got != "tap0:\nSSH-\nrefused" {
		t.Errorf("stdout %q", got)
	}
}
