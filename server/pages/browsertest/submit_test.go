package browsertest

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// A run is made in a form, and once more with another command.
func TestRunIsMadeAndRunAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	s.startWorker()
	p := s.visit(desk)
	p.signIn("ann")
	p.clicks("new run")
	p.sees("New run")
	p.types("textarea[name=command]", "echo of the form")
	p.types("input[name=name]", "1 wrong name")
	p.clicks("Run")
	p.sees("The run is not made", "A name begins with a letter")
	p.types("input[name=name]", "formed")
	p.clicks("Run")
	p.sees("formed", "A run of ann", "of the form", "ready")
	p.clicks("Run again")
	p.sees("It repeats this run")
	p.types("textarea[name=command]", "echo another time")
	p.clicks("Run")
	p.sees("A run of ann", "another time", "ready")
	if runs := strings.Fields(s.cl("ann", "search", ".mine", "type=run", "--uuid-only")); len(runs) != 2 {
		t.Errorf("there are the runs %v", runs)
	}
}

// The root user sees who has what, and changes a quota. Others have no such page.
func TestRootChangesAQuota(t *testing.T) {
	t.Parallel()
	s := newSite(t, "root", "ann")
	root := s.visit(desk)
	root.signIn("root")
	root.clicks("People")
	root.sees("2 users", "ann", "Quotas")
	root.do(chromedp.SendKeys(`//form[.//button[@value="quota"]]//input[@name="user"]`, "ann", chromedp.BySearch), chromedp.SendKeys("input[name=disk]", "7g", chromedp.ByQuery))
	root.click("button[value=quota]")
	root.await("the quota is changed", func() bool {
		return evaluate[bool](root, `[...document.querySelectorAll("tbody tr")].some((r) => r.cells[0].innerText === "ann" && r.cells[2].innerText.startsWith("7"))`)
	})
	ann := s.visit(desk)
	ann.signIn("ann")
	if strings.Contains(ann.shown(), "People") {
		t.Errorf("ann is offered a page of people: %s", ann.shown())
	}
}
