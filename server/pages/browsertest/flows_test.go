package browsertest

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

func TestWrongPasswordIsToldAndTheNameStays(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	p := s.visit(desk)
	p.goTo("/")
	p.types("input[name=name]", "ann")
	p.types("input[name=password]", "wrong")
	p.clicks("main//button|Sign in")
	p.await("an alert", func() bool { return evaluate[bool](p, `!!document.querySelector("main [role=alert]")`) })
	if name := evaluate[string](p, `document.querySelector("input[name=name]").value`); name != "ann" {
		t.Errorf("the name is %q now, on %s", name, p.shown())
	}
	p.types("input[name=password]", password)
	p.clicks("main//button|Sign in")
	p.sees("ann Sign out", "No bundle matches.")
}

// A person signs in, follows a run, looks at its files, kills another run, removes one, and signs out.
func TestDayOfAResearcher(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	s.startWorker()
	p := s.visit(desk)
	p.signIn("ann")
	p.sees("No bundle matches.")

	// The list follows what happens.
	p.do(chromedp.Evaluate(`window.notReloaded = true`, nil))
	go1, go2 := s.dir+"/go1", s.dir+"/go2"
	uuid := s.cl("ann", "run", "echo first line; until [ -e "+go1+" ]; do sleep 0.1; done; echo second line; until [ -e "+go2+" ]; do sleep 0.1; done; printf 'a,b\\n1,2\\n' > table.csv; echo last line", "-n", "grows")
	p.sees("grows", "running")
	if !evaluate[bool](p, `window.notReloaded === true`) {
		t.Error("the list was loaded again")
	}

	// The output of a run grows while one looks.
	p.clicks("grows")
	p.sees("A run of ann", "first line")
	p.do(chromedp.Evaluate(`window.notReloaded = true`, nil))
	s.write("go1", "")
	p.sees("second line")
	if !evaluate[bool](p, `window.notReloaded === true`) {
		t.Error("the page was loaded again")
	}
	s.write("go2", "")
	p.sees("ready", "last line", "table.csv")

	// Its files can be browsed and fetched.
	p.clicks("table.csv")
	p.sees("Download")
	if got := p.fetches("Download"); got != "a,b\n1,2\n" {
		t.Errorf("the file has %q", got)
	}

	// A run is killed.
	long := s.cl("ann", "run", "echo begun; sleep 3600", "-n", "long")
	p.goTo("/bundles/" + long)
	p.sees("begun")
	p.clicks("Kill")
	p.sees("Remove", "killed") // the page's sentence about the click goes with the end of the run

	// The list is searched, and a bundle is removed.
	p.goTo("/runs")
	p.types("input[name=q]", ".mine name=long")
	p.loads(func() { p.clicks("Search") })
	p.sees("long", "killed")
	if strings.Contains(p.shown(), "grows") {
		t.Errorf("the search is no search: %s", p.shown())
	}
	p.chooses("long")
	p.clicks("Remove the chosen")
	p.sees("This bundle will be deleted for good")
	p.clicks("Remove for good")
	p.sees("1 bundle removed.", "No bundle matches.")
	if left := s.cl("ann", "search", ".mine", "type=run", "--uuid-only"); left != uuid {
		t.Errorf("there are %s", left)
	}

	p.clicks("Sign out")
	p.sees("Password")
	p.goTo("/bundles/" + uuid)
	p.sees("Sign in to see this page, if you may see it.")
}

// A list stays as it is while somebody has chosen a bundle in it.
func TestListWaitsForWhoChooses(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	p := s.visit(desk)
	first := s.cl("ann", "run", "true", "-n", "first")
	p.signIn("ann")
	p.sees("first")
	p.chooses("first")
	other := p.secondTab()
	other.goTo("/runs")
	other.sees("first")
	s.cl("ann", "run", "true", "-n", "second")
	other.sees("second")
	if !evaluate[bool](p, `document.querySelector("input:checked")?.value === "`+first+`"`) {
		t.Errorf("the choice is lost: %s", p.shown())
	}
	// What has come meanwhile is there once nothing is chosen.
	if strings.Contains(p.shown(), "second") {
		t.Errorf("the list was drawn anew: %s", p.shown())
	}
	p.do(chromedp.Evaluate(`document.querySelector("input:checked").click(); document.activeElement.blur()`, nil))
	p.sees("second")
	p.chooses("first")
	// What one tab does, the other one shows.
	p.clicks("Remove the chosen")
	p.clicks("Remove for good")
	p.sees("1 bundle removed.")
	other.await("the other tab shows it", func() bool { return !strings.Contains(other.shown(), "first") })
}

// What a stream brings while a pointer is pressed waits for its release: a click whose target is replaced meanwhile would be lost.
func TestStreamsLoseNoClick(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	s.startWorker()
	p := s.visit(desk)
	p.signIn("ann")
	run := func(name string) string {
		return s.cl("ann", "run", "until [ -e "+s.dir+"/"+name+" ]; do sleep 0.1; done", "-n", name)
	}
	keeps := func(what string) {
		p.await("the page keeps "+what, func() bool {
			return evaluate[bool](p, `[...waiting.keys()].some((part) => part.matches("`+what+`"))`)
		})
	}
	const rows, page = "[sse-swap=rows]", "[hx-trigger='sse:ended']"

	run("first")
	p.sees("first", "running")
	release := p.holdsDown("//h1")
	s.cl("ann", "run", "true", "-n", "second")
	keeps(rows)
	if strings.Contains(p.shown(), "second") {
		t.Errorf("a list has changed under a pressed pointer: %s", p.shown())
	}
	release()
	p.sees("second")
	release = p.holdsDown("//main//a[.='first']")
	s.cl("ann", "run", "true", "-n", "third")
	keeps(rows)
	release()
	p.sees("A run of ann", "Metadata")

	// The end of a run replaces the whole page.
	release = p.holdsDown("//h1")
	s.write("first", "")
	keeps(page)
	release()
	p.sees("Finished")
	p.goTo("/bundles/" + run("fourth"))
	p.sees("running", "home-ann")
	release = p.holdsDown("//main//a[.='home-ann']")
	s.write("fourth", "")
	keeps(page)
	release()
	p.await("the worksheet", func() bool { return strings.HasPrefix(evaluate[string](p, `location.pathname`), "/worksheets/") })
}

// A worksheet that is public is there for everybody, and nothing else is.
func TestReaderWithoutLogin(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann", "ben")
	w := newGallery(s)
	reader := s.visit(desk)
	reader.goTo("/worksheets/" + w.worksheet)
	reader.sees("Sign in to see this page, if you may see it.")
	s.cl("ann", "wperm", w.worksheet, "public", "read")
	s.cl("ann", "perm", w.data, "public", "read")
	reader.goTo("/worksheets/" + w.worksheet)
	reader.sees("Learning rates", "0.91", "May be read by public.")
	reader.await("the picture is there", func() bool {
		return evaluate[bool](reader, `[...document.images].every((i) => i.complete && i.naturalWidth > 0) && document.images.length > 0`)
	})
	reader.clicks("results")
	reader.sees("A dataset of ann", "scores.csv")
	if strings.Contains(reader.shown(), "Remove") {
		t.Errorf("a reader is offered to remove: %s", reader.shown())
	}
	reader.goTo("/bundles/" + w.secret)
	reader.sees("Sign in to see this page, if you may see it.")
	colleague := s.visit(desk)
	colleague.signIn("ben")
	colleague.goTo("/bundles/" + w.secret)
	colleague.sees("Not Found")
	colleague.goTo("/worksheets/" + s.home("ben"))
	colleague.sees("home-ben")
	// Whoever signs in comes back to the page.
	reader.click(`main a[href^="/signin"]`)
	reader.types("input[name=name]", "ann")
	reader.types("input[name=password]", password)
	reader.clicks("main//button|Sign in")
	reader.sees("secret", "A dataset of ann")
}

// Reading and forms work without scripts.
func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	w := newGallery(s)
	run := s.cl("ann", "run", "sleep 1", "-n", "waits")
	p := s.visit(desk)
	p.withoutScripts()
	p.signIn("ann")
	if evaluate[bool](p, `typeof htmx !== "undefined"`) {
		t.Error("scripts run")
	}
	p.sees("waits")
	p.clicks("waits")
	p.sees("A run of ann", "cl run --like "+run)
	p.clicks("Kill")
	p.sees("1 bundle will be killed.")
	p.goTo("/runs?q=.mine")
	p.types("input[name=q]", "name=results")
	p.loads(func() { p.clicks("Search") })
	p.sees("results")
	p.chooses("results")
	p.goTo("/bundles/" + w.data)
	p.clicks("scores.csv")
	p.sees("rate accuracy", "0.91")
	if got := p.fetches("Download"); !strings.HasPrefix(got, "rate,accuracy\n") {
		t.Errorf("the file has %q", got)
	}
	p.goTo("/worksheets/" + w.worksheet)
	p.sees("Learning rates", "0.91")
	p.clicks("Sign out")
	p.sees("Password")
}

// Who has only a keyboard reaches everything, and sees where the focus is.
func TestKeyboardReachesEverything(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	w := newGallery(s)
	p := s.visit(desk)
	p.signIn("ann")
	for _, path := range w.pages() {
		p.goTo(path)
		p.sees("Sign out")
		p.walks(path)
	}
	p.goTo("/signin")
	// The first key leads past the menu.
	p.goTo("/runs")
	p.presses("\t")
	if text := evaluate[string](p, `document.activeElement.innerText`); text != "Skip to the contents" {
		t.Errorf("the first key leads to %q", text)
	}
}

// walks goes through a page with the key Tab. It passes by the lines of a plot, with a tabindex of -1; each leads where another link
// of the page leads.
func (p *person) walks(path string) {
	p.t.Helper()
	const mark = `
		window.seen = new Set();
		window.unseen = () => [...document.querySelectorAll("a[href]:not([tabindex='-1']), button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")]
			.filter((e) => e.checkVisibility() && !seen.has(e)).map((e) => e.outerHTML.slice(0, 120));
		window.look = () => {
			const e = document.activeElement;
			if (seen.has(e)) return "";
			seen.add(e);
			const style = getComputedStyle(e);
			return e !== document.body && (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) ? e.outerHTML.slice(0, 120) : "";
		};
		document.activeElement.blur();
		unseen().length`
	steps := evaluate[int](p, mark) + 9 // a part of a page that scrolls takes a step, too
	for range steps {
		p.presses("\t")
		if bare := evaluate[string](p, `look()`); bare != "" {
			p.t.Errorf("%s: nobody sees the focus on %s", path, bare)
		}
	}
	const alone = `[...document.querySelectorAll("a[tabindex='-1']")].map((a) => a.getAttribute("href"))
		.filter((to) => ![...document.querySelectorAll("a:not([tabindex='-1'])")].some((a) => a.getAttribute("href") === to))`
	if left := evaluate[[]string](p, alone); len(left) > 0 {
		p.t.Errorf("%s: no link but that of a plot leads to %s", path, strings.Join(left, "\n"))
	}
	if left := evaluate[[]string](p, `unseen()`); len(left) > 0 {
		p.t.Errorf("%s: the keyboard does not reach %s", path, strings.Join(left, "\n"))
	}
}

// Nothing of a page is wider than a phone, and text can be read in the dark.
func TestPagesFitAPhoneAndTheDark(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	w := newGallery(s)
	p := s.visit(phone.inTheDark())
	check := func(path string) {
		p.goTo(path)
		p.sees("Queues")
		if wide := evaluate[int](p, `document.documentElement.scrollWidth`); wide > phone.width {
			t.Errorf("%s is %d wide: %v", path, wide, evaluate[[]string](p, `[...document.querySelectorAll("main *, header *")]
				.filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".wide, pre")).map((e) => e.outerHTML.slice(0, 120))`))
		}
		if back := evaluate[string](p, `getComputedStyle(document.body).backgroundColor`); !strings.HasPrefix(back, "rgb(1") {
			t.Errorf("%s is not dark: %s", path, back)
		}
	}
	check("/signin")
	p.signIn("ann")
	for _, path := range w.pages() {
		check(path)
	}
}
