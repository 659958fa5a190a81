package slurmtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// The suite of package sbatch runs on a Cluster and on the real cluster. The tests here show behaviour that
// takes the real cluster minutes, or disturbs its other users.

// quick is a site with short times.
func quick() *slurmtest.Site {
	s := slurmtest.NewSite()
	s.StartDelay, s.NameAfter, s.EndAfter = 0, 0, 0
	s.KillWait, s.MinJobAge, s.LimitEvery, s.RequeueDelay = 50*time.Millisecond, time.Hour, 50*time.Millisecond, 50*time.Millisecond
	return s
}

// script is a job named "a".
func script(text string, extra ...string) sbatch.Request {
	return sbatch.Request{Name: "a", Dir: "/tmp", Output: "/dev/null", Script: "#!/bin/sh\n" + text + "\n", Extra: extra}
}

func submit(t *testing.T, k *slurmtest.Cluster, r sbatch.Request) sbatch.JobID {
	t.Helper()
	id, err := k.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// await waits until the job is in a state.
func await(t *testing.T, k *slurmtest.Cluster, state sbatch.State) sbatch.Job {
	t.Helper()
	var found []sbatch.Job
	testenv.Await(t, "a job is "+string(state), func() bool {
		s, err := k.Observe(t.Context(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		found = s.ByName()["a"]
		return len(found) == 1 && found[0].State == state
	}, &found)
	return found[0]
}

func TestProcessesOfALostNodeRunOn(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, quick())
	dir := t.TempDir()
	r := script("until [ -e stop ]; do sleep 0.01; done; echo >done; exec sleep 600")
	r.Dir = dir
	submit(t, k, r)
	node := await(t, k, sbatch.StateRunning).Nodes
	set := func(state string) {
		k.Do(func(now time.Time, m *slurmtest.Controller) {
			if err := m.SetNode(now, node, state); err != nil {
				t.Error(err)
			}
		})
	}
	set(slurmtest.NodeLost)
	await(t, k, sbatch.StateNodeFail)
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.AwaitFile(t, filepath.Join(dir, "done"))
	set(slurmtest.NodeResume)
	await(t, k, sbatch.StateNodeFail)
}

func TestClusterEndsItsJobsWithTheTest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const child = `sh -c 'trap "" TERM; echo $$ >$0.pid; mv $0.pid $0; exec sleep 600' `
	t.Run("a test", func(t *testing.T) {
		k := slurmtest.NewCluster(t, quick())
		r := script(child + "begun & setsid " + child + "elsewhere & wait")
		r.Dir = dir
		submit(t, k, r)
		testenv.AwaitFile(t, filepath.Join(dir, "begun"))
		testenv.AwaitFile(t, filepath.Join(dir, "elsewhere"))
	})
	for _, name := range []string{"begun", "elsewhere"} {
		pid, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var stat []byte
		testenv.Await(t, "the kernel has ended the process of its job", func() bool {
			stat, err = os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ")
		}, &stat)
	}
}
