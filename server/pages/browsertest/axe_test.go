package browsertest

import (
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// violation is one of axe's rules that a page breaks (axe-core, doc/API.md: Results Object).
type violation struct {
	ID, Help string
	Nodes    []struct{ HTML, FailureSummary string }
}

// TestPagesPassAxe checks each kind of page by the rules of axe-core, whose axe.min.js CLTEST_AXE names, for example from
// "npm pack axe-core".
func TestPagesPassAxe(t *testing.T) {
	t.Parallel()
	axe := axeScript(t)
	if axe == "" {
		t.Skip("needs axe-core: CLTEST_AXE is not the path of an axe.min.js")
	}
	s := newSite(t, "root", "ann")
	pages := newGallery(s).pages()
	for _, on := range []screen{desk, phone} {
		p := s.visit(on)
		p.goTo("/signin")
		p.passes(axe, "/signin", on)
		p.signIn("ann")
		for _, path := range pages {
			p.goTo(path)
			p.sees("Queues")
			p.passes(axe, path, on)
		}
	}
	root := s.visit(desk)
	root.signIn("root")
	root.goTo("/people")
	root.sees("2 users")
	root.passes(axe, "/people", desk)
	// The plots of a sweep need values.
	s.startWorker()
	s.cl("ann", "run", "--each", "rate=1,2", `echo '{"acc": 0.{rate}}' > stats.json`, "-n", "drawn", "--sweep", "drawn")
	p := s.visit(phone)
	p.signIn("ann")
	p.goTo("/sweeps/" + s.worksheet("drawn"))
	p.await("all have ended", func() bool {
		return evaluate[int](p, `document.querySelectorAll(".state.ready").length`) == 2
	})
	p.types("input[name=columns]", "/stats.json:acc")
	p.loads(func() { p.clicks("Show these columns") })
	p.sees("0.2")
	p.passes(axe, "/sweeps/…, drawn", phone)
	p.do(chromedp.Evaluate(`document.querySelector("input[name=uuid]").click()`, nil))
	p.clicks("Remove the chosen")
	p.sees("will be deleted for good")
	p.passes(axe, "/runs/actions", phone)
}

// axeScript is axe-core; empty without CLTEST_AXE.
func axeScript(t *testing.T) string {
	t.Helper()
	path := os.Getenv("CLTEST_AXE")
	if path == "" {
		return ""
	}
	axe, err := os.ReadFile(path)
	testenv.Must(t, err)
	return string(axe)
}

// passes reports the rules that the page breaks, in the light and in the dark.
func (p *person) passes(axe, path string, on screen) {
	p.t.Helper()
	p.await("curves are drawn", func() bool {
		return evaluate[bool](p, `[...document.querySelectorAll(".charts")].every((c) => c.querySelector("canvas") || !JSON.parse(c.nextElementSibling.textContent).curves.length)`)
	})
	p.do(chromedp.Evaluate(axe, nil))
	for _, on := range []screen{on, on.inTheDark()} {
		p.light(on)
		var found []violation
		p.do(chromedp.Evaluate(`axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations)`, &found,
			func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
		for _, v := range found {
			for _, n := range v.Nodes {
				p.t.Errorf("%s, %s: %s (%s): %s\n%s", path, on, v.Help, v.ID, n.HTML, strings.TrimSpace(n.FailureSummary))
			}
		}
	}
}
