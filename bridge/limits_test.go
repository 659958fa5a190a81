package bridge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// limitedSlurm tells the limits of account lab. Jobs of others count with those that the bridge has.
type limitedSlurm struct {
	slurm  *fakeSlurm
	limits []sbatch.Limit

	mu           sync.Mutex
	others       int64
	hidden       bool // the use is not told
	down         bool
	tables, uses int
}

// asUser is the association of the bridge's Slurm user.
var asUser = sbatch.LimitHolder{Account: "lab", User: "bridge"}

var errNoDatabase = errors.New("sacctmgr: error: Problem talking to the database: Connection refused")

func (l *limitedSlurm) Limits(_ context.Context, cluster string) (sbatch.LimitTable, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tables++
	if l.down || cluster != "north" {
		return sbatch.LimitTable{}, errNoDatabase
	}
	own, account := sbatch.LimitedAssociation{Default: true}, sbatch.LimitedAssociation{}
	for _, limit := range l.limits {
		if limit.Holder == asUser {
			own.Limits = append(own.Limits, limit)
		} else {
			account.Limits = append(account.Limits, limit)
		}
	}
	return sbatch.LimitTable{User: asUser.User, Associations: map[sbatch.LimitHolder]sbatch.LimitedAssociation{asUser: own, {Account: "lab"}: account}}, nil
}

func (l *limitedSlurm) Use(context.Context, []string) (sbatch.LimitUse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uses++
	if l.hidden {
		return sbatch.LimitUse{}, errors.New("Access/permission denied")
	}
	waiting, running := l.others, l.others
	l.slurm.change(func() {
		for _, j := range l.slurm.jobs {
			if !j.State.Ended() {
				waiting++
			}
			if j.State == sbatch.StateRunning {
				running++
			}
		}
	})
	lab := sbatch.LimitHolder{Account: "lab"}
	return sbatch.LimitUse{Used: map[sbatch.Limit]int64{
		{Holder: lab, Kind: sbatch.GrpSubmitJobs}: waiting, {Holder: lab, Kind: sbatch.GrpJobs}: running,
		{Holder: lab, Kind: sbatch.GrpTRES, TRES: "cpu"}: running,
	}}, nil
}

func (l *limitedSlurm) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func labLimit(kind sbatch.LimitKind, tres string, most int64) sbatch.Limit {
	return sbatch.Limit{Holder: sbatch.LimitHolder{Account: "lab"}, Kind: kind, TRES: tres, Most: most}
}

// limitedSite is a site whose account lab has limits, which the controller enforces.
func limitedSite(s *site, limits ...sbatch.Limit) *limitedSlurm {
	l := &limitedSlurm{slurm: s.slurm, limits: limits}
	settings := sbatch.Settings{Cluster: "north", Accounting: true, Limits: true, MinJobAge: 5 * time.Minute}
	s.alter = func(b *bridge.Bridge) {
		b.Settings = func(context.Context) (sbatch.Settings, error) { return settings, nil }
		b.Limits = l
	}
	return l
}

// The bridge submits no more jobs than Slurm takes, so that no sbatch is refused; and no fewer, so that each end makes
// room at once.
func TestNoMoreJobsAreSubmittedThanALimitAllows(t *testing.T) {
	t.Parallel()
	for name, hidden := range map[string]bool{"use is told": false, "use is hidden": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				const most, bundles = 4, 30
				l := limitedSite(s, labLimit(sbatch.GrpSubmitJobs, "", most))
				l.hidden = hidden
				s.start()
				s.within(time.Minute, "the limits are asked for", func() bool { return l.uses > 0 })
				time.Sleep(time.Second)
				refused, live := 0, 0
				s.slurm.refuse = func(sbatch.Request) error { // under its lock
					live = 0
					for _, j := range s.slurm.jobs {
						if !j.State.Ended() {
							live++
						}
					}
					if live < most {
						return nil
					}
					refused++
					return &sbatch.Error{Op: "submit", Refused: true, Retry: true, Message: "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits) (AssocGrpSubmitJobsLimit)"}
				}
				for i := range bundles {
					s.offer(bundleID(i+1), "sleep 30")
				}
				waits := func(r plan.Row) bool {
					return r.Phase == plan.Staging && r.RunStatus() == "Waiting: account lab may have 4 jobs in Slurm at once, and has 4."
				}
				s.within(time.Minute, "26 bundles wait, with the limit in their status", func() bool {
					n := 0
					for _, r := range s.rows() {
						if waits(r) {
							n++
						}
					}
					return n == bundles-most
				})
				began := time.Now()
				for i := range bundles {
					if run := s.result(10*time.Minute, bundleID(i+1)); run.FailureMessage != nil {
						t.Errorf("bundle %d failed: %s", i+1, *run.FailureMessage)
					}
				}
				if refused > 0 {
					t.Errorf("sbatch was refused %d times", refused)
				}
				if took := time.Since(began); took > 6*time.Minute { // 8 rounds of 30 s
					t.Errorf("30 bundles of 30 s, four at once, took %v", took)
				}
			})
		})
	}
}

// Others use up the limit between two questions. sbatch's refusal then is a wait, in which the bridge asks again soon.
func TestRefusalForALimitIsAWaitAndIsLearntFrom(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		l := limitedSite(s, labLimit(sbatch.GrpSubmitJobs, "", 4))
		s.start()
		s.within(time.Minute, "the limits are asked for", func() bool { return l.uses > 0 })
		time.Sleep(20 * time.Second)
		refusals, full := 0, true
		s.slurm.refuse = func(sbatch.Request) error {
			if !full {
				return nil
			}
			refusals++
			return &sbatch.Error{Op: "submit", Refused: true, Retry: true, Message: "Job violates accounting/QOS policy (AssocGrpSubmitJobsLimit)"}
		}
		l.change(func() { l.others = 4 })
		s.offer(bundleID(1), "sleep 1")
		s.within(30*time.Second, "the bundle waits for the limit", func() bool {
			return strings.HasPrefix(s.rows()[bundleID(1)].RunStatus(), "Waiting: account lab may have 4 jobs in Slurm at once, and has 4.")
		})
		before := refusals
		time.Sleep(time.Hour)
		if refusals > before {
			t.Errorf("sbatch was refused %d times more within an hour", refusals-before)
		}
		s.slurm.change(func() { full = false })
		l.change(func() { l.others = 3 })
		if run := s.result(2*time.Minute, bundleID(1)); run.FailureMessage != nil {
			t.Errorf("it failed: %s", *run.FailureMessage)
		}
	})
}

func TestWaitingJobNamesItsLimitAndTheUse(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		l := limitedSite(s, labLimit(sbatch.GrpJobs, "", 40))
		l.others = 40
		s.slurm.never = func(sbatch.Request) string { return "AssocGrpJobsLimit" }
		s.startWith("sleep 1", plan.Queued)
		s.within(time.Minute, "the limit in its status", func() bool {
			return strings.Contains(s.says(bundleID(1)), "Account lab may run 40 jobs at once, and 40 run.")
		})
		l.change(func() { l.others = 38 })
		s.within(2*time.Minute, "the new use", func() bool {
			return strings.Contains(s.says(bundleID(1)), "Account lab may run 40 jobs at once, and 38 run.")
		})
		if words := s.bridge.Condition().Limits["cpu"]; !slices.Equal(words, []string{"account lab: 38 of 40 jobs run"}) {
			t.Errorf("the condition has %q", words)
		}
	})
}

// A request above a limit of one job could never start, as one above all nodes.
func TestLimitsLowerWhatAQueueOffers(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		const gib = 1 << 30
		cpus, wall := labLimit(sbatch.MaxTRESPJ, "cpu", 8), labLimit(sbatch.MaxWallPJ, "", 120)
		cpus.Holder, wall.Holder = asUser, asUser
		limitedSite(s, cpus, wall, labLimit(sbatch.GrpTRES, "gres/gpu", 2))
		node := sbatch.NodeResources{CPUs: 64, Memory: 250 * gib, GPUs: 4, GPUTypes: map[string]int64{"a100": 4}}
		s.slurm.partitions = []sbatch.Partition{{
			Name: "cpu", Default: true, State: "up", Nodes: 1, Ready: 1, MaxTime: 24 * time.Hour, Most: node, All: node, Sizes: sbatch.NodeSizes{node},
		}}
		s.start()
		s.within(time.Minute, "a check-in with the ceilings", func() bool {
			in := s.last()
			return len(in.Nodes) == 1 && in.Nodes[0] == codalab.NodeSize{CPUs: 8, GPUs: 2, MemoryBytes: 250 * gib}
		})
		if q := s.last().Queue; q.PartitionSeconds != 7200 || q.MaxSeconds != 0 || q.GPUTypes["a100"] != 2 {
			t.Errorf("the queue tells %+v", *q)
		}
	})
}

// lines keeps the lines of a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}

// Without a database, without enforced limits, and without an answer nothing is learnt, and all works.
func TestUnknownLimitsAreSaidOnceAndHoldNobodyUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings     sbatch.Settings
		down, hidden bool
		want         string
		tables, uses int
	}{
		"no database":  {settings: sbatch.Settings{Cluster: "north"}},
		"not enforced": {settings: sbatch.Settings{Cluster: "north", Accounting: true}},
		"no answer":    {settings: sbatch.Settings{Cluster: "north", Accounting: true, Limits: true}, down: true, want: errNoDatabase.Error(), tables: 7},
		"hidden use":   {settings: sbatch.Settings{Cluster: "north", Accounting: true, Limits: true}, hidden: true, want: "Access/permission denied", tables: 7, uses: 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				l := limitedSite(s, labLimit(sbatch.GrpSubmitJobs, "", 1))
				l.down, l.hidden = c.down, c.hidden
				var log lines
				alter := s.alter
				s.alter = func(b *bridge.Bridge) {
					alter(b)
					b.Settings = func(context.Context) (sbatch.Settings, error) { return c.settings, nil }
					b.Log = slog.New(slog.NewTextHandler(&log, nil))
				}
				s.start()
				for i := range 3 {
					s.offer(bundleID(i+1), "sleep 1")
				}
				for i := range 3 {
					s.result(time.Minute, bundleID(i+1))
				}
				time.Sleep(time.Hour)
				if got := s.bridge.Condition(); got.LimitsUnknown != c.want || len(got.Limits) > 0 != c.hidden {
					t.Errorf("the condition has %q, %q", got.LimitsUnknown, got.Limits)
				}
				said := 1
				if c.want == "" { // no limit applies, so none is unknown
					said = 0
				}
				if n := log.count("limits of QOS and associations are not known"); n != said {
					t.Errorf("it is logged %d times, want %d", n, said)
				}
				if l.tables > c.tables || l.uses > c.uses {
					t.Errorf("the limits were asked for %d times, their use %d times", l.tables, l.uses)
				}
			})
		})
	}
}

// The questions cost the controller the same for any number of bundles, and fewer where the use is hidden.
func TestLimitsCostFewQuestions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bundles, uses int
		hidden        bool
	}{{1, 61, false}, {200, 61, false}, {200, 7, true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				bundles := c.bundles
				l := limitedSite(s, labLimit(sbatch.GrpJobs, "", 1))
				l.hidden = c.hidden
				s.slurm.never = func(sbatch.Request) string { return "AssocGrpJobsLimit" }
				s.start()
				for i := range bundles {
					s.offer(bundleID(i+1), "sleep 1")
				}
				time.Sleep(time.Hour)
				if l.tables > 7 || l.uses > c.uses {
					t.Errorf("%d and %d questions within an hour", l.tables, l.uses)
				}
			})
		})
	}
}
