package realsite_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// pair are two runs of one command on one node: one that must not begin twice, and one of the queue
// again, which may.
type pair struct{ once, again, node string }

func (s site) startPair(t *testing.T, command string) pair {
	t.Helper()
	s.on(t, loginRoot, "scontrol update NodeName=c2 State=DRAIN Reason=test")
	p := pair{once: s.run(t, command), again: s.run(t, command, "--request-queue", "again")}
	p.node = s.node(t, p.again)
	if node := s.node(t, p.once); node != p.node {
		t.Fatalf("the runs are on %s and %s", node, p.node)
	}
	s.on(t, loginRoot, "scontrol update NodeName=c2 State=RESUME")
	return p
}

// triedAgain waits until the second job of the run that may begin again runs, and checks that
// Slurm has given up the first.
func (s site) triedAgain(t *testing.T, p pair) {
	t.Helper()
	await(t, "the second job of "+p.again+" runs", func() bool {
		jobs := s.jobs(t, p.again)
		return len(jobs) == 2 && jobs[1].state != "PENDING"
	})
	jobs := s.jobs(t, p.again)
	if jobs[0].state != "NODE_FAIL" || jobs[0].node != p.node || jobs[1].node == p.node {
		t.Errorf("the jobs of %s are %v, want a NODE_FAIL on %s and another node", p.again, jobs, p.node)
	}
	s.until(t, p.again, "running")
}

// ends checks the ends of both: the one has failed with a sentence, the other is ready, with the output
// of its second attempt.
func (s site) ends(t *testing.T, p pair) {
	t.Helper()
	s.ready(t, p.again)
	host := s.on(t, "root@"+p.node, "hostname")
	if got := s.cl(t, "cat", p.again+"/stdout"); strings.HasPrefix(got, host+"\n") || !strings.HasSuffix(got, "\nslept") || strings.Count(got, "\n") != 1 {
		t.Errorf("stdout %q; the first attempt was on %s", got, host)
	}
	if state := s.ended(t, p.once); state != "failed" {
		t.Errorf("the run that must not begin twice is %s, want failed", state)
	}
	if got := s.field(t, p.once, "failure_message"); !strings.Contains(got, "node of Slurm job") || !strings.Contains(got, "(NODE_FAIL)") {
		t.Errorf("failure_message %q", got)
	}
	if once, again := s.jobs(t, p.once), s.jobs(t, p.again); len(once) != 1 || len(again) != 2 {
		t.Errorf("the jobs are %v and %v, want one and two", once, again)
	}
}

func TestRunsOnANodeWithoutPowerEndAsTheirQueueSays(t *testing.T) {
	s := realSite(t)
	p := s.startPair(t, "hostname; sleep 30; echo slept")
	began := time.Now()
	s.control(t, "power-off", p.node)
	s.triedAgain(t, p)
	t.Logf("tried again %s after the power cut of %s", time.Since(began).Round(time.Second), p.node)
	s.control(t, "up")
	s.ends(t, p)
}

// Slurm has given up a node on which commands still run, and the node's network heals while the second
// attempt runs: nothing of the first attempt counts. Slurm takes the node back when an administrator
// requests it, and ends the abandoned jobs there.
func TestLateNodeIsNotHeard(t *testing.T) {
	s := realSite(t)
	p := s.startPair(t, "hostname; test $(hostname) = c2 || sleep 1000; sleep 20; echo slept")
	began := time.Now()
	s.control(t, "cut", p.node)
	s.triedAgain(t, p)
	t.Logf("tried again %s after the network of %s was cut", time.Since(began).Round(time.Second), p.node)
	s.control(t, "heal", p.node)
	healed := time.Now()
	if left := s.on(t, "root@"+p.node, "pgrep -u researcher -xc sleep"); left != "2" {
		t.Errorf("%s commands run on the late node, want two", left)
	}
	s.control(t, "up")
	await(t, "the late node has no process of the runs", func() bool {
		left, err := s.try(t.Context(), "root@"+p.node, "pgrep -u researcher -l 'cl-worker|sleep' || echo none")
		return err == nil && left == "none"
	})
	t.Logf("bench: site/healed_to_clean_node %.3g s ratio=- against=- bar=- met", time.Since(healed).Seconds())
	s.ends(t, p)
	t.Logf("bench: site/healed_to_settled %.3g s ratio=- against=- bar=- met", time.Since(healed).Seconds())
}

// running waits until all bundles run.
func (s site) running(t *testing.T, bundles []string) {
	t.Helper()
	for _, bundle := range bundles {
		s.until(t, bundle, "running")
	}
}

const minuteOfWork = "i=0; while test $i -lt 60; do i=$((i+1)); echo $i >>lines; sleep 1; done; wc -l <lines"

func TestRunsOutliveARestartOfTheFileServer(t *testing.T) {
	s := realSite(t)
	bundles := s.runs(t, 20, func(int) string { return minuteOfWork })
	s.running(t, bundles)
	s.control(t, "nfs", "stop")
	await(t, "the login node waits for its disk", func() bool {
		_, err := s.try(t.Context(), loginRoot, "timeout 20 stat -f /shared >/dev/null")
		return err != nil
	})
	s.control(t, "nfs", "start")
	for _, bundle := range bundles {
		s.ready(t, bundle)
		if got := s.cl(t, "cat", bundle+"/stdout"); got != "60" {
			t.Errorf("%s printed %q, want 60", bundle, got)
		}
		if jobs := s.jobs(t, bundle); len(jobs) != 1 {
			t.Errorf("the jobs of %s are %v, want one", bundle, jobs)
		}
	}
}

// The file server comes back with the same files in other inodes: the handles of all clients are stale,
// also those of a running command's files. Such a run may fail, by itself or with a sentence of the
// bridge. Nothing hangs, and the next run works. A signal that the stale image caused does not count as
// the command's.
func TestStaleHandlesHoldNothingUp(t *testing.T) {
	s := realSite(t)
	bundles := s.runs(t, 20, func(int) string { return minuteOfWork })
	s.running(t, bundles)
	s.control(t, "nfs", "restore")
	ends := map[string]int{}
	for _, bundle := range bundles {
		state := s.ended(t, bundle)
		ends[fmt.Sprintf("%s: %s", state, s.field(t, bundle, "failure_message"))]++
	}
	for end, n := range ends {
		t.Logf("%d runs ended %s", n, end)
		if strings.Contains(end, "bus error") {
			t.Error("the image's fault is the command's")
		}
	}
	s.ready(t, s.run(t, "true"))
}
