package browsertest

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// hides makes a page believe that another tab is in front of it, or that it is in front again.
func (p *person) hides(hidden bool) {
	p.t.Helper()
	text := "false"
	if hidden {
		text = "true"
	}
	p.do(chromedp.Evaluate(`Object.defineProperty(document, "hidden", {configurable: true, value: `+text+`}); document.dispatchEvent(new Event("visibilitychange")); 0`, nil))
}

// A browser has six connections to a server without HTTP/2. Pages that nobody sees take none of them, and go on when they are seen.
func TestHiddenPagesLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	p := s.visit(desk)
	p.signIn("ann")
	p.sees("No bundle matches.")
	p.do(chromedp.Evaluate(`window.notReloaded = true`, nil))
	p.hides(true)
	for range 7 {
		tab := p.secondTab()
		tab.goTo("/runs")
		tab.sees("No bundle matches.")
		tab.await("the stream is open", func() bool { return evaluate[int](tab, `streams.size`) == 1 })
		tab.hides(true)
	}
	s.cl("ann", "run", "true", "-n", "first")
	if strings.Contains(p.shown(), "first") {
		t.Errorf("a hidden page follows: %s", p.shown())
	}
	p.hides(false)
	p.sees("first")
	s.cl("ann", "run", "true", "-n", "second")
	p.sees("second")
	if !evaluate[bool](p, `window.notReloaded === true`) {
		t.Error("the list was loaded again")
	}
}

// A page tells when its reader signs out in another tab.
func TestPageTellsThatTheSignInHasEnded(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	p := s.visit(desk)
	p.signIn("ann")
	p.sees("No bundle matches.")
	other := p.secondTab()
	other.goTo("/worksheets")
	other.clicks("Sign out")
	p.sees("Nobody is signed in here any more")
	p.click(`main [role=alert] a`)
	p.types("input[name=name]", "ann")
	p.types("input[name=password]", password)
	p.clicks("main//button|Sign in")
	p.sees("ann Sign out", "No bundle matches.")
	if at := evaluate[string](p, `location.pathname`); at != "/runs" {
		t.Errorf("the sign-in leads to %s", at)
	}
}
