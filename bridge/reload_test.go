package bridge_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// reload puts a policy in force whose queues a function has changed.
func (s *site) reload(change func(p *plan.Policy)) error {
	s.Helper()
	p := s.policy()
	p.Queues = maps.Clone(p.Queues)
	change(&p)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.bridge.Reload(ctx, p)
}

func TestReloadedLimitHoldsForBundlesThatWait(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.queue.MaxInFlight = 1
		s.start()
		s.offer(bundleID(1), "sleep 600")
		s.phase(5*time.Second, bundleID(1), plan.Running)
		s.offer(bundleID(2), "sleep 600")
		time.Sleep(time.Minute)
		if got := s.rows()[bundleID(2)].Phase; got != plan.Staging {
			s.Fatalf("the second bundle is %s", got)
		}
		s.queue.MaxInFlight = 2
		if err := s.reload(func(*plan.Policy) {}); err != nil {
			s.Fatal(err)
		}
		s.phase(5*time.Second, bundleID(2), plan.Running)
		s.phase(0, bundleID(1), plan.Running)
	})
}

// The table of owners decides about bundles that wait, too.
func TestReloadedTableOfOwnersHoldsForTheNextJobs(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		var mu sync.Mutex
		var accounts []string
		s.slurm.before = func(r sbatch.Request) {
			mu.Lock()
			defer mu.Unlock()
			accounts = append(accounts, r.Account)
		}
		s.queue.MaxInFlight = 1
		s.start()
		s.offer(bundleID(1), "sleep 60")
		s.phase(5*time.Second, bundleID(1), plan.Running)
		s.offer(bundleID(2), "sleep 60")
		time.Sleep(20 * time.Second)
		if err := s.reload(func(p *plan.Policy) {
			p.Map = []plan.Mapping{{Users: []string{"*"}, Billing: plan.Billing{Account: "nlp"}}}
		}); err != nil {
			s.Fatal(err)
		}
		s.phase(2*time.Minute, bundleID(2), plan.Running)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(accounts, []string{"", "nlp"}) {
			s.Errorf("the jobs' accounts are %q", accounts)
		}
	})
}

func TestReloadedQueueChecksInAndRemovedOneDoesNot(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.start()
		answered := func(queue string) time.Time { return s.bridge.Answers()[queue] }
		s.within(time.Minute, "the first queue checks in", func() bool { return !answered("cpu").IsZero() })
		if err := s.reload(func(p *plan.Policy) { p.Queues["gpu"] = plan.Queue{Name: "gpu", Tag: "gpu"} }); err != nil {
			s.Fatal(err)
		}
		s.within(10*time.Second, "the new queue checks in", func() bool { return !answered("gpu").IsZero() })
		if err := s.reload(func(*plan.Policy) {}); err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Minute)
		if at := answered("gpu"); !at.IsZero() || len(s.bridge.Condition().UnansweredQueues) > 0 {
			s.Errorf("the removed queue checked in at %s; %+v", at, s.bridge.Condition())
		}
		if since := time.Since(answered("cpu")); since > 10*time.Second {
			s.Errorf("the queue that stayed has not checked in for %s", since)
		}
	})
}

func TestReloadKeepsAQueueWithBundlesAndChangesNothingThen(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.start()
		s.offer(bundleID(1), "sleep 60")
		s.phase(5*time.Second, bundleID(1), plan.Running)
		without := func(p *plan.Policy) { p.Queues = map[string]plan.Queue{"gpu": {Name: "gpu", Tag: "gpu"}} }
		if err := s.reload(without); err == nil || !strings.Contains(err.Error(), "[queue.cpu] is gone from the configuration, and bundle "+bundleID(1)+" of it has not ended") {
			s.Errorf("error %v", err)
		}
		time.Sleep(20 * time.Second)
		if answers := s.bridge.Answers(); answers["cpu"].IsZero() || !answers["gpu"].IsZero() {
			s.Errorf("the refused configuration is in force: %v", answers)
		}
		s.phase(2*time.Minute, bundleID(1), plan.Done)
		if err := s.reload(without); err != nil {
			s.Errorf("once the bundle has ended: %v", err)
		}
	})
}
