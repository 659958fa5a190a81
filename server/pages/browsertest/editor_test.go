package browsertest

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// A worksheet is made, written with a preview, saved by the keyboard, shared and deleted.
func TestWorksheetIsWritten(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	data := s.cl("ann", "upload", s.write("notes.txt", "x\n"))
	p := s.visit(desk)
	p.signIn("ann")
	p.goTo("/worksheets")
	p.types("input[name=name]", "ann-results")
	p.clicks("Make it")
	p.sees("ann-results")
	p.goTo("/worksheets/" + s.worksheet("ann-results"))
	p.clicks("Edit")
	p.types("textarea", "## Found\n\nIt is *good*.\n\n[data]{"+data+"}\n")
	p.await("the preview follows", func() bool {
		return strings.Contains(evaluate[string](p, `document.querySelector("#preview").innerText`), "It is good.")
	})
	p.do(chromedp.KeyEvent("s", chromedp.KeyModifiers(input.ModifierCtrl)))
	p.sees("Name, readers and more", "Found", "It is good.", "notes.txt")
	reader := s.visit(desk)
	reader.goTo("/worksheets/" + s.worksheet("ann-results"))
	reader.sees("Sign in to see this page, if you may see it.")
	p.clicks("Name, readers and more")
	p.do(chromedp.SetValue("select[name=group]", "public", chromedp.ByQuery), chromedp.SetValue("select[name=permission]", "read", chromedp.ByQuery))
	p.loads(func() { p.click("button[value=permit]") })
	p.sees("public read")
	reader.goTo("/worksheets/" + s.worksheet("ann-results"))
	reader.sees("It is good.")
	if strings.Contains(reader.shown(), "Edit") {
		t.Errorf("a reader is offered to edit: %s", reader.shown())
	}
	p.click("input[name=sure]")
	p.clicks("Delete")
	p.sees("A new worksheet")
	if left := s.cl("ann", "wsearch", "name=ann-results", "--uuid-only"); left != "" {
		t.Errorf("there is %s", left)
	}
}

// Who saves a worksheet that has changed meanwhile is told, and loses nothing.
func TestSecondTabThatEditsAWorksheetIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	home := s.home("ann")
	first := s.visit(desk)
	first.signIn("ann")
	second := first.secondTab()
	first.goTo("/worksheets/" + home + "/edit")
	second.goTo("/worksheets/" + home + "/edit")
	first.types("textarea", "of the first tab\n")
	first.clicks("Save")
	first.sees("Name, readers and more", "of the first tab")
	second.types("textarea", "of the second tab\n")
	second.clicks("Save")
	second.sees("The worksheet has changed since you opened it", "Nothing was saved")
	if text := evaluate[string](second, `document.querySelector("textarea").value`); !strings.Contains(text, "of the second tab") {
		t.Errorf("the text is lost: %q", text)
	}
	second.clicks("Save in place of what is there now")
	second.sees("Name, readers and more", "of the second tab")
	if text := s.cl("ann", "print", home, "-r"); !strings.Contains(text, "of the second tab") || strings.Contains(text, "first") {
		t.Errorf("the worksheet is %q", text)
	}
}
