package plan_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// transition is a change of phase, with the fixed part of its reason.
type transition struct {
	from, to plan.Phase
	reason   string
}

func (t transition) String() string { return fmt.Sprintf("%s -> %s: %s", t.from, t.to, t.reason) }

// atlas collects the decisions of scenarios or random lives.
type atlas struct {
	// shown maps each transition to the first scenario that shows it, on has the news that caused it.
	shown map[transition]string
	on    map[transition]map[string]bool
	// wakes has the news that changed a row of a phase, wants the effects that were wanted in one, each with
	// the first scenario.
	wakes map[plan.Phase]map[string]string
	wants map[plan.Phase]map[plan.Kind]string
	// fixed keeps the fixed parts of reasons.
	fixed     map[string]string
	decisions int
}

func newAtlas() *atlas {
	return &atlas{
		shown: map[transition]string{}, on: map[transition]map[string]bool{},
		wakes: map[plan.Phase]map[string]string{}, wants: map[plan.Phase]map[plan.Kind]string{},
		fixed: map[string]string{},
	}
}

// add adds a decision.
func (a *atlas) add(m move, where string) {
	a.decisions++
	if m.reason != "" {
		if _, ok := a.fixed[m.reason]; !ok {
			a.fixed[m.reason] = known().fixed(m.reason)
		}
		t := transition{m.from, m.to, a.fixed[m.reason]}
		first(a.shown, t, where)
		if a.on[t] == nil {
			a.on[t] = map[string]bool{}
		}
		a.on[t][strings.Join(m.news, " and ")] = true
	}
	if m.mattered && len(m.news) == 1 {
		if a.wakes[m.from] == nil {
			a.wakes[m.from] = map[string]string{}
		}
		first(a.wakes[m.from], m.news[0], where)
	}
	for _, k := range m.wants {
		if m.from != m.to || len(m.news) > 1 {
			break // effects of the phase before may be among them
		}
		if a.wants[m.to] == nil {
			a.wants[m.to] = map[plan.Kind]string{}
		}
		first(a.wants[m.to], k, where)
	}
}

func first[K comparable](in map[K]string, key K, where string) {
	if _, ok := in[key]; !ok {
		in[key] = where
	}
}

// scenarioAtlas collects the decisions of all scenarios.
func scenarioAtlas(t *testing.T) *atlas {
	t.Helper()
	a := newAtlas()
	for _, name := range scenarios(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		play(t, name, string(text), func(m move) { a.add(m, strings.TrimSuffix(filepath.Base(name), ".txt")) })
	}
	return a
}

// TestTransitionsAreAllShown leads bundles through random lives. Each transition there must be in a scenario.
func TestTransitionsAreAllShown(t *testing.T) {
	t.Parallel()
	a := scenarioAtlas(t)
	lived, err := lives()
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range slices.SortedFunc(maps.Keys(lived.shown), compareTransitions) {
		if _, ok := a.shown[tr]; !ok {
			t.Errorf("no scenario shows (%s, on %v): %s", lived.shown[tr], slices.Sorted(maps.Keys(lived.on[tr])), tr)
		}
	}
	for _, p := range plan.Phases() {
		for _, news := range slices.Sorted(maps.Keys(lived.wakes[p])) {
			if _, ok := a.wakes[p][news]; !ok && news != "restart" { // all rows are decided then
				t.Errorf("no scenario shows that a row in %s minds: %s (%s)", p, news, lived.wakes[p][news])
			}
		}
		for _, k := range slices.Sorted(maps.Keys(lived.wants[p])) {
			if _, ok := a.wants[p][k]; !ok {
				t.Errorf("no scenario shows that a row in %s wants: %s (%s)", p, k, lived.wants[p][k])
			}
		}
	}
	t.Logf("%d transitions and %d decisions in %d scenarios, %d transitions and %d decisions in random lives",
		len(a.shown), a.decisions, len(scenarios(t)), len(lived.shown), lived.decisions)
}

func compareTransitions(a, b transition) int {
	order := func(p plan.Phase) int { return slices.Index(plan.Phases(), p) }
	return cmp.Or(order(a.from)-order(b.from), order(a.to)-order(b.to), strings.Compare(a.reason, b.reason))
}
