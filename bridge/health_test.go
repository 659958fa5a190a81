package bridge_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// refused is a final refusal that is no bundle's fault.
func refused(words string) error {
	return &sbatch.Error{Message: words, Refused: true, OfSite: true, Err: errors.New("exit status 1")}
}

const noAccount = "Invalid account or account/partition combination specified"

func TestI10TroubleOfAQueueFailsNoBundle(t *testing.T) {
	t.Parallel()
	const bundles = 100
	atSite(t, func(s *site) {
		s.slurm.refuse = func(sbatch.Request) error { return refused(noAccount) }
		s.start()
		for n := range bundles {
			s.offer(bundleID(n+1), "true")
		}
		time.Sleep(time.Hour)
		for _, r := range s.rows() {
			if r.Phase != plan.Staging || r.Verdict != nil {
				t.Fatalf("after an hour %s is %s: %s", r.Bundle, r.Phase, r.Reason)
			}
			if says := r.RunStatus(); !strings.HasPrefix(says, "Waiting: Slurm takes no job of queue cpu since ") || !strings.Contains(says, noAccount) ||
				!strings.Contains(says, "one bundle is tried again at ") {
				t.Errorf("%s says %q", r.Bundle, says)
			}
		}
		if why := s.bridge.Condition().Held["cpu"]; !strings.Contains(why, noAccount) {
			t.Errorf("the heartbeat says %q", why)
		}
		s.slurm.change(func() {
			if s.slurm.submits > bridge.DefaultPace().Burst+8 { // a burst at first, then one in ten minutes
				t.Errorf("%d submissions in an hour", s.slurm.submits)
			}
			s.slurm.refuse = nil // the account is given back
		})
		for n := range bundles {
			if run := s.result(20*time.Minute, bundleID(n+1)); run.FailureMessage != nil {
				t.Errorf("bundle %d: %s", n+1, *run.FailureMessage)
			}
		}
		if why := s.bridge.Condition().Held["cpu"]; why != "" {
			t.Errorf("after that the heartbeat says %q", why)
		}
	})
}

// A rule of a site's plugin may refuse one bundle and no other, in words that tell nothing.
func TestI10BundleThatIsRefusedAloneFails(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.slurm.refuse = func(r sbatch.Request) error {
			if strings.Contains(r.Comment, bundleID(1)) {
				return refused("Unspecified error (no project is named)")
			}
			return nil
		}
		s.start()
		for n := range 10 {
			s.offer(bundleID(n+1), "true")
			time.Sleep(time.Minute)
		}
		s.wantFailure(s.result(30*time.Minute, bundleID(1)), "Slurm refused the job: Unspecified error (no project is named).")
		for n := range 9 {
			if run := s.result(30*time.Minute, bundleID(n+2)); run.FailureMessage != nil {
				t.Errorf("bundle %d: %s", n+2, *run.FailureMessage)
			}
		}
	})
}

// noNode is what Slurm says of a request that no node can take.
const noNode = "Requested node configuration is not available"

// largerThan refuses jobs of more memory than a node has.
func largerThan(mib int64) func(sbatch.Request) error {
	return func(r sbatch.Request) error {
		if r.MemoryMiB > mib {
			return &sbatch.Error{Message: noNode, Refused: true, Err: errors.New("exit status 1")}
		}
		return nil
	}
}

// TestI10TwoImpossibleRequestsHoldNobodyUp: one user asks for 400g, then for 300g, on nodes of 250g.
func TestI10TwoImpossibleRequestsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for name, partitions := range map[string][]sbatch.Partition{
		"nodes are known": {{Name: "cpu", Default: true, Nodes: 1, Sizes: sbatch.NodeSizes{{CPUs: 64, Memory: 250 * gib}}, All: sbatch.NodeResources{CPUs: 64, Memory: 250 * gib}, Most: sbatch.NodeResources{CPUs: 64, Memory: 250 * gib}}},
		"nodes are not":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				s.slurm.refuse, s.slurm.partitions = largerThan(250<<10), partitions
				s.start()
				for n, memory := range []int64{400, 300} {
					s.offerWith(bundleID(n+1), "true", func(m *codalab.Message) { m.Resources.Memory = memory * gib })
					time.Sleep(time.Second)
				}
				nearest := ""
				if partitions != nil {
					nearest = " No node of the queue is that large; the nearest request that fits one is --request-cpus 1 --request-memory 250g."
				}
				for n, memory := range []string{"400g", "300g"} {
					s.wantFailure(s.result(10*time.Second, bundleID(n+1)),
						"Slurm refused the job: "+noNode+". Asked of queue cpu: 1 CPU, "+memory+" of memory, 1h0m."+nearest)
				}
				s.offer(bundleID(9), "true")
				if run := s.result(10*time.Second, bundleID(9)); run.FailureMessage != nil {
					t.Errorf("another bundle: %s", *run.FailureMessage)
				}
				if held := s.bridge.Condition().Held["cpu"]; held != "" {
					t.Errorf("the queue is held up: %s", held)
				}
			})
		})
	}
}

// TestI10HundredImpossibleRequestsCostFewQuestions: they are alike.
func TestI10HundredImpossibleRequestsCostFewQuestions(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	atSite(t, func(s *site) {
		s.slurm.refuse = largerThan(250 << 10)
		s.slurm.partitions = []sbatch.Partition{{Name: "cpu", Default: true, Nodes: 1, Sizes: sbatch.NodeSizes{{CPUs: 64, Memory: 250 * gib}}, All: sbatch.NodeResources{CPUs: 64}}}
		s.start()
		for n := range 100 {
			s.offerWith(bundleID(n+1), "true", func(m *codalab.Message) { m.Resources.Memory = 400 * gib })
		}
		for n := range 100 {
			if run := s.result(time.Minute, bundleID(n+1)); run.FailureMessage == nil {
				t.Errorf("bundle %d did not fail", n+1)
			}
		}
		s.slurm.change(func() {
			if s.slurm.submits > 0 || s.slurm.tries > 3 {
				t.Errorf("%d submissions and %d questions", s.slurm.submits, s.slurm.tries)
			}
		})
	})
}

// TestI10QueueIsHeldUpIfSlurmTakesNoJobOfIt: one refusal is enough, and the first success opens it.
func TestI10QueueIsHeldUpIfSlurmTakesNoJobOfIt(t *testing.T) {
	t.Parallel()
	var h plan.Health
	q := plan.Queue{Name: "gpu", Tag: "gpu"}
	judge := func(at time.Duration, ofQueue bool) {
		r := plan.Row{Bundle: bundleID(1), Queue: "gpu", Phase: plan.Submitting}
		r.Attempt.Number = 1
		h.Judge(time.Unix(0, 0).Add(at), r, &plan.News{Submitted: &plan.SbatchAnswer{Attempt: 1, Refused: true, OfQueue: ofQueue, Words: noNode}})
	}
	for i := range 3 {
		judge(time.Duration(i)*time.Second, false)
	}
	if h.Held(q) != "" || h.MaySubmit(time.Unix(2, 0), 5) != 5 {
		t.Errorf("refusals of requests hold the queue up: %q", h.Held(q))
	}
	judge(3*time.Second, true)
	early, due := h.MaySubmit(time.Unix(30, 0), 5), h.MaySubmit(time.Unix(63, 0), 5)
	h.Submitted(time.Unix(63, 0))
	if early != 0 || due != 1 || h.MaySubmit(time.Unix(64, 0), 5) != 0 || !strings.HasPrefix(h.Held(q), "Slurm takes no job of queue gpu since ") {
		t.Errorf("a queue that is held up does not submit one row after a minute: %q", h.Held(q))
	}
	// The first job was taken before the refusals; sbatch's answer was lost, and it is found now (SEED=419872).
	learn := func(submitted int64) {
		taken := plan.Row{Bundle: bundleID(2)}
		taken.Job.ID, taken.SubmittedAt = 7, time.Unix(submitted, 0)
		h.Learn(time.Unix(70, 0), plan.Row{Bundle: bundleID(2)}, taken, plan.Nodes{})
	}
	learn(1)
	if h.Held(q) == "" {
		t.Error("a job that was taken before the refusals opens the queue")
	}
	learn(63)
	if h.MaySubmit(time.Unix(70, 0), 5) != 5 || h.Held(q) != "" {
		t.Errorf("after a success it is still held up: %q", h.Held(q))
	}
	judge(80*time.Second, true)
	judge(90*time.Second, false) // Slurm takes the smallest job again
	if h.Held(q) != "" {
		t.Errorf("it is held up although Slurm takes jobs: %q", h.Held(q))
	}
}

// The operator has mended the queue's QOS: new jobs start. Those that were submitted with the old one wait
// as before, and hold nobody up.
func TestI11JobsOfAMendedQueueHoldNobodyUp(t *testing.T) {
	t.Parallel()
	var h plan.Health
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	old := plan.Row{Bundle: bundleID(1), Queue: "gpu", Phase: plan.Queued}
	old.Attempt.Number, old.Job = 1, sbatch.Job{ID: 1, State: sbatch.StatePending, Reason: "InvalidQOS"}
	judge := func(now time.Time) {
		h.Judge(now, old, &plan.News{Observation: &plan.Observation{Jobs: []sbatch.Job{old.Job}}})
	}
	if judge(at(0)); h.MaySubmit(at(1), 5) != 0 {
		t.Fatal("the queue is not held up")
	}
	old.ImpossibleSince = at(0)
	fresh := plan.Row{Bundle: bundleID(2)}
	begun := fresh
	begun.Begun = &spool.Started{}
	h.Learn(at(60), fresh, begun, plan.Nodes{})
	if judge(at(66)); h.MaySubmit(at(66), 5) != 5 {
		t.Error("an old job holds the queue up again")
	}
}

// Slurm takes a job that no node of the partition can run, and lets it wait for ever
// (EnforcePartLimits=NO, which is the default). Two people's such jobs are no trouble of the queue
// while others' jobs start.
func TestI11JobsThatCanNeverStartHoldNobodyUp(t *testing.T) {
	t.Parallel()
	const bundles = 100
	atSite(t, func(s *site) {
		s.slurm.never = func(r sbatch.Request) string {
			if strings.Contains(r.Comment, bundleID(1)) || strings.Contains(r.Comment, bundleID(2)) {
				return "PartitionTimeLimit"
			}
			return ""
		}
		s.start()
		for n := range bundles {
			s.offerWith(bundleID(n+1), "true", func(m *codalab.Message) { m.Resources.GPUs = int64(n % 2) })
			if n == 3 {
				time.Sleep(time.Minute) // Slurm has given its reason
			}
		}
		for n := 2; n < bundles; n++ {
			if run := s.result(time.Minute, bundleID(n+1)); run.FailureMessage != nil {
				t.Errorf("bundle %d: %s", n+1, *run.FailureMessage)
			}
		}
	})
}

// TestI10QueueWhoseJobsCanNotStartIsHeldUp: that sbatch takes its jobs does not show that they can
// start.
func TestI10QueueWhoseJobsCanNotStartIsHeldUp(t *testing.T) {
	t.Parallel()
	const bundles = 100
	atSite(t, func(s *site) {
		s.slurm.never = func(sbatch.Request) string { return "InvalidQOS" }
		s.start()
		for n := range bundles {
			s.offerWith(bundleID(n+1), "true", func(m *codalab.Message) { m.Resources.GPUs = int64(n % 2) })
		}
		time.Sleep(time.Hour)
		if why := s.bridge.Condition().Held["cpu"]; !strings.HasPrefix(why, "no job of queue cpu can start since ") || !strings.Contains(why, "(InvalidQOS)") {
			t.Errorf("the heartbeat says %q", why)
		}
		s.slurm.change(func() {
			if most := bridge.DefaultPace().Burst + 20; s.slurm.submits > most { // until the first snapshot, then one in ten minutes
				t.Errorf("%d submissions in an hour, want %d at most", s.slurm.submits, most)
			}
			s.slurm.never = nil
			for _, j := range s.slurm.jobs {
				j.start()
			}
		})
		for n := range bundles {
			if run := s.result(time.Minute, bundleID(n+1)); run.FailureMessage != nil {
				t.Errorf("bundle %d: %s", n+1, *run.FailureMessage)
			}
		}
		if why := s.bridge.Condition().Held["cpu"]; why != "" {
			t.Errorf("after that the heartbeat says %q", why)
		}
	})
}

func TestI10NodeThatFailsEveryJobIsAvoided(t *testing.T) {
	t.Parallel()
	const bundles = 100
	atSite(t, func(s *site) {
		s.slurm.sick = "n9"
		s.start()
		for n := range bundles {
			s.offer(bundleID(n+1), "true")
			if n == bundles/2 {
				time.Sleep(2 * time.Minute)
				if why := s.bridge.Condition().Nodes["n9"]; !strings.Contains(why, "did not start (This node has no /dev/fuse.)") || !strings.Contains(why, "avoided until") {
					t.Errorf("the heartbeat says %q of n9", why)
				}
			}
		}
		for n := range bundles {
			if run := s.result(20*time.Minute, bundleID(n+1)); run.FailureMessage != nil {
				t.Errorf("bundle %d: %s", n+1, *run.FailureMessage)
			}
		}
		onSick := 0
		s.slurm.change(func() {
			for _, j := range s.slurm.jobs {
				if j.node == "n9" {
					onSick++
				}
			}
		})
		if onSick > bundles/2+1 {
			t.Errorf("%d jobs were sent to the node, %d of them before it was avoided", onSick, bundles/2+1)
		}
		for _, r := range s.rows() {
			if r.FailedStarts > 1 {
				t.Errorf("%s failed %d starts", r.Bundle, r.FailedStarts)
			}
		}
	})
}

// If no other node will do Slurm refuses the job at once, and the bundle may run on any node.
func TestI10BundleThatNeedsTheOnlyNodeRunsThereAgain(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.slurm.sick = "n9"
		s.slurm.refuse = func(r sbatch.Request) error {
			if r.Exclude == "n9" {
				return &sbatch.Error{Message: "Requested node configuration is not available", Refused: true, Err: errors.New("exit status 1")}
			}
			return nil
		}
		s.start()
		s.offer(bundleID(1), "true")
		s.within(3*time.Minute, "it is sent to the node again", func() bool {
			var jobs int
			s.slurm.change(func() { jobs = len(s.slurm.jobs) })
			return jobs == 2
		})
		s.slurm.change(func() { s.slurm.sick = "" })
		if run := s.result(20*time.Minute, bundleID(1)); run.FailureMessage != nil {
			t.Errorf("failure %s", *run.FailureMessage)
		}
	})
}

// After one failed start the node is still used for other bundles' jobs. The next attempt of this
// bundle excludes it.
func TestI10NextAttemptExcludesTheNodeOnWhichTheCommandDidNotStart(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.slurm.sick = "n9"
		s.start()
		s.offer(bundleID(1), "true")
		if run := s.result(5*time.Minute, bundleID(1)); run.FailureMessage != nil {
			t.Errorf("failure %s", *run.FailureMessage)
		}
		s.slurm.change(func() {
			if len(s.slurm.jobs) != 2 || s.slurm.jobs[1].node == "n9" {
				t.Errorf("%d jobs, want one on n9 and one elsewhere", len(s.slurm.jobs))
			}
		})
	})
}

// A command that starts on a node shows that its failures before were no sickness.
func TestI10OnlyFailuresInARowMakeANodeAvoided(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	var h plan.Health
	nodes := plan.Nodes{}
	failed, another, begun := plan.Row{FailedStarts: 1, FailedNode: "n9"}, plan.Row{FailedStarts: 1, FailedNode: "n9"}, plan.Row{}
	failed.Bundle, another.Bundle = bundleID(1), bundleID(2)
	begun.Begun, begun.CommandBegan = &spool.Started{Node: "n9"}, true
	for _, after := range []plan.Row{failed, begun, another} {
		h.Learn(now, plan.Row{}, after, nodes)
	}
	if avoided := nodes.Avoided(now); len(avoided) > 0 {
		t.Errorf("%v are avoided after one failure since the last start", avoided)
	}
	h.Learn(now, plan.Row{}, failed, nodes)
	if avoided := nodes.Avoided(now); len(avoided) != 1 {
		t.Errorf("%v are avoided after two failures in a row", avoided)
	}
}
