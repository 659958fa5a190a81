package browsertest

import (
	"strings"
	"testing"
)

// A sweep is compared by a value of its result files, drawn, and run again in part.
func TestSweepIsCompared(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	s.startWorker()
	s.cl("ann", "run", "--each", "lr=1,2,3", `echo '{"acc": 0.{lr}}' > stats.json`, "-n", "train", "--sweep", "rates")
	p := s.visit(desk)
	p.signIn("ann")
	p.clicks("my sweeps")
	p.clicks("rates")
	p.sees("ready", "Plots")
	p.await("all have ended", func() bool {
		return evaluate[int](p, `document.querySelectorAll(".state.ready").length`) == 3
	})
	p.types("input[name=columns]", "/stats.json:acc")
	p.clicks("Show these columns")
	p.sees("0.1", "0.2", "0.3")
	// Sorted by the value, and back.
	p.click(`thead a[href*="acc"]`)
	p.await("the page is sorted", func() bool {
		return evaluate[bool](p, `!!document.querySelector("tbody tr") && !!document.querySelector("th[aria-sort]") && location.search.includes("acc")`)
	})
	first := func() string { return evaluate[string](p, `document.querySelector("tbody tr")?.innerText ?? ""`) }
	before := first()
	p.click(`thead a[href*="acc"]`)
	p.await("the order turns", func() bool { now := first(); return now != "" && now != before })
	// Each point of the plot is a link to its run.
	if n := evaluate[int](p, `document.querySelectorAll("svg circle").length`); n != 3 {
		t.Errorf("the plot has %d points", n)
	}
	address := evaluate[string](p, `location.pathname`)
	// The columns are remembered.
	p.goTo(address)
	p.sees("0.1", "0.2", "0.3")
	p.click(`main tbody input[type=checkbox]`)
	p.clicks("Run the chosen again")
	p.await("there are four runs", func() bool {
		return len(strings.Fields(s.cl("ann", "search", ".mine", "type=run", "--uuid-only"))) == 4
	})
}
