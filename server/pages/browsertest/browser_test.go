package browsertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// chromium is the browser of all tests of this process. The first test that needs it starts it.
type chromium struct {
	once sync.Once
	ctx  context.Context
	end  []context.CancelFunc
	err  error
}

var theChromium chromium

func (c *chromium) start(t *testing.T) {
	t.Helper()
	program := testenv.Chromium(t)
	c.once.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.WSURLReadTimeout(testenv.WaitLimit), chromedp.WindowSize(desk.width, desk.height), chromedp.Flag("host-resolver-rules", "MAP "+plainHost+" 127.0.0.1"))
		if os.Geteuid() == 0 {
			options = append(options, chromedp.NoSandbox) // Chromium refuses root one
		}
		ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
		c.end = append(c.end, end)
		c.ctx, end = chromedp.NewContext(ctx)
		c.end = append(c.end, end)
		c.err = chromedp.Run(c.ctx)
	})
	testenv.Must(t, c.err)
}

// stop ends it, if it was started.
func (c *chromium) stop() {
	for _, end := range c.end {
		defer end()
	}
}

// executor calls the browser itself, and no page.
func (c *chromium) executor() context.Context {
	return cdp.WithExecutor(c.ctx, chromedp.FromContext(c.ctx).Browser)
}

// screen is what a page is shown on.
type screen struct {
	width, height int
	dark          bool
}

var (
	desk  = screen{width: 1200, height: 900}
	phone = screen{width: 390, height: 844}
)

func (s screen) inTheDark() screen { s.dark = true; return s }

func (s screen) String() string {
	name := "desk"
	if s.width == phone.width {
		name = "phone"
	}
	if s.dark {
		name += ", dark"
	}
	return name
}

// person is a browser's profile with one page.
type person struct {
	t    *testing.T
	site *site
	// profile has the person's cookies.
	profile cdp.BrowserContextID
	// leave closes the profile with its pages. The end of the test calls it, too.
	leave   func()
	ctx     context.Context
	mu      sync.Mutex
	errors  []string
	fetched chan string
	// downloads is the directory of what is downloaded.
	downloads string
	// scriptless is set if the pages run no scripts.
	scriptless bool
}

// visit opens a profile without cookies. At the end of the test, errors of the page's scripts and things that its policy
// has forbidden fail the test.
func (s *site) visit(on screen) *person {
	s.t.Helper()
	browsers := theChromium.executor()
	profile, err := target.CreateBrowserContext().WithDisposeOnDetach(true).Do(browsers)
	testenv.Must(s.t, err)
	p := &person{t: s.t, site: s, profile: profile, downloads: s.t.TempDir(), fetched: make(chan string, 9)}
	p.leave = sync.OnceFunc(func() { testenv.Must(s.t, target.DisposeBrowserContext(profile).Do(browsers)) })
	s.t.Cleanup(p.leave)
	p.open(on)
	return p
}

// secondTab opens another page of the same profile.
func (p *person) secondTab() *person {
	p.t.Helper()
	tab := &person{t: p.t, site: p.site, profile: p.profile, downloads: p.downloads, fetched: make(chan string, 9)}
	tab.open(desk)
	return tab
}

// open opens the person's page, in a window of its own.
func (p *person) open(on screen) {
	p.t.Helper()
	page, err := target.CreateTarget("about:blank").WithBrowserContextID(p.profile).WithNewWindow(true).Do(theChromium.executor())
	testenv.Must(p.t, err)
	ctx, end := chromedp.NewContext(theChromium.ctx, chromedp.WithTargetID(page))
	p.t.Cleanup(end)
	testenv.Must(p.t, chromedp.Run(ctx))
	p.ctx = ctx
	chromedp.ListenTarget(ctx, p.hear)
	p.do(browser.SetDownloadBehavior(browser.SetDownloadBehaviorBehaviorAllowAndName).WithBrowserContextID(p.profile).WithDownloadPath(p.downloads).WithEventsEnabled(true))
	p.do(cdppage.BringToFront())
	p.do(chromedp.EmulateViewport(int64(on.width), int64(on.height), func(m *emulation.SetDeviceMetricsOverrideParams, _ *emulation.SetTouchEmulationEnabledParams) {
		m.Mobile = on.width == phone.width
	}))
	p.light(on)
	p.t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, text := range p.errors {
			p.t.Errorf("the browser reports: %s", text)
		}
	})
}

// light sets what the person's system prefers.
func (p *person) light(on screen) {
	p.t.Helper()
	scheme := "light"
	if on.dark {
		scheme = "dark"
	}
	p.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}))
}

// hear keeps what the browser reports about a page.
func (p *person) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.errors = append(p.errors, e.ExceptionDetails.Error())
	case *cdplog.EventEntryAdded:
		// A status of 401 or 404 is an error of the network.
		if e.Entry.Level == cdplog.LevelError && e.Entry.Source != cdplog.SourceNetwork {
			p.errors = append(p.errors, fmt.Sprint(e.Entry.Source, ": ", e.Entry.Text, " ", e.Entry.URL))
		}
	case *browser.EventDownloadProgress:
		if e.State == browser.DownloadProgressStateCompleted {
			p.fetched <- e.GUID
		}
	}
}

// do does things one after the other. If one fails, it says what the page shows.
func (p *person) do(actions ...chromedp.Action) {
	p.t.Helper()
	ctx, end := context.WithTimeout(p.ctx, testenv.WaitLimit)
	defer end()
	if err := chromedp.Run(ctx, actions...); err != nil {
		p.t.Fatalf("%v\n%s", err, p.shown())
	}
}

// shown is the page's address and text.
func (p *person) shown() (text string) {
	ctx, end := context.WithTimeout(p.ctx, testenv.WaitLimit)
	defer end()
	if err := chromedp.Run(ctx, chromedp.Evaluate(`location.href + "\n" + document.body.innerText`, &text)); err != nil {
		return err.Error()
	}
	return text
}

// goTo opens an address of the site.
func (p *person) goTo(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.site.address + path))
}

// sees waits until the page shows a text. Spaces and lines of it count as one space.
func (p *person) sees(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.await("the page shows "+text, func() bool { return strings.Contains(strings.Join(strings.Fields(p.shown()), " "), text) })
	}
}

// await waits until a condition holds.
func (p *person) await(what string, holds func() bool) {
	p.t.Helper()
	testenv.Await(p.t, what, holds, p.shown)
}

// evaluate returns the value of an expression in the page, which changes nothing. A page that is about to be another one
// cannot be asked, or has not all of its elements yet.
func evaluate[T any](p *person, expression string) (value T) {
	p.t.Helper()
	p.await("the page has a value of "+expression, func() bool {
		ctx, end := context.WithTimeout(p.ctx, testenv.WaitLimit)
		defer end()
		return chromedp.Run(ctx, chromedp.Evaluate(expression, &value)) == nil
	})
	return value
}

// types types into a field, in place of what it has.
func (p *person) types(field, text string) {
	p.t.Helper()
	p.do(chromedp.WaitVisible(field, chromedp.ByQuery), chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%q).select()`, field), nil), chromedp.SendKeys(field, text, chromedp.ByQuery))
}

// clicks clicks on what has a text: a link, a button, or what a selector in front of a vertical bar says.
func (p *person) clicks(text string) {
	p.t.Helper()
	kind, label, found := strings.Cut(text, "|")
	if !found {
		kind, label = "*[self::a or self::button or self::summary]", text
	}
	p.click(fmt.Sprintf(`//%s[normalize-space()=%q]`, kind, label))
}

// click clicks on what a selector, or an XPath, finds. If that moves before the pointer is there, as it may where a stream redraws
// the page, the person sees that nothing has come of the click, and clicks again.
func (p *person) click(selector string) {
	p.t.Helper()
	watch := `window.missed = true; addEventListener("click", (event) => { missed = !` + finds(selector) + `?.contains(event.target); }, { capture: true, once: true }); 0`
	p.await("a click on "+selector, func() bool {
		ctx, end := context.WithTimeout(p.ctx, testenv.WaitLimit)
		defer end()
		err := chromedp.Run(ctx, chromedp.WaitVisible(selector, chromedp.BySearch), chromedp.Evaluate(watch, nil), chromedp.Click(selector, chromedp.BySearch, chromedp.NodeVisible))
		return err == nil && (p.scriptless || !evaluate[bool](p, `window.missed === true`))
	})
}

// holdsDown presses the pointer on what an XPath finds, until the caller calls release.
func (p *person) holdsDown(xpath string) (release func()) {
	p.t.Helper()
	at := evaluate[struct{ X, Y float64 }](p, fmt.Sprintf(`(() => {
		const found = %s;
		found.scrollIntoView({ block: "center", behavior: "instant" });
		const { x, y, height } = found.getBoundingClientRect();
		return { X: x + 4, Y: y + height / 2 };
	})()`, finds(xpath)))
	does := func(what input.MouseType) {
		p.t.Helper()
		p.do(input.DispatchMouseEvent(what, at.X, at.Y).WithButton(input.Left).WithClickCount(1))
	}
	does(input.MousePressed)
	return func() {
		p.t.Helper()
		does(input.MouseReleased)
	}
}

// finds is the JavaScript for the first element that a selector, or an XPath, finds.
func finds(selector string) string {
	if strings.HasPrefix(selector, "/") {
		return fmt.Sprintf(`document.evaluate(%q, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE).singleNodeValue`, selector)
	}
	return fmt.Sprintf(`document.querySelector(%q)`, selector)
}

// loads waits until what a person does has led to another page, which may look like this one.
func (p *person) loads(does func()) {
	p.t.Helper()
	p.do(chromedp.Evaluate(`window.before = true`, nil))
	does()
	p.await("another page", func() bool { return evaluate[bool](p, `window.before !== true && document.readyState === "complete"`) })
}

// chooses ticks a bundle of a list.
func (p *person) chooses(name string) {
	p.t.Helper()
	box := fmt.Sprintf(`input[aria-label="Choose %s"]`, name)
	p.await(name+" is chosen", func() bool {
		if !evaluate[bool](p, fmt.Sprintf(`!!document.querySelector(%q)?.checked`, box)) {
			p.click(box)
		}
		return evaluate[bool](p, fmt.Sprintf(`!!document.querySelector(%q)?.checked`, box))
	})
}

// signIn signs a user in.
func (p *person) signIn(user string) {
	p.t.Helper()
	p.goTo("/signin")
	p.types("input[name=name]", user)
	p.types("input[name=password]", password)
	p.presses(kb.Enter)
	p.sees(user+" Sign out", "Runs")
}

// presses presses keys.
func (p *person) presses(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// fetches returns what the browser saves after a click.
func (p *person) fetches(text string) string {
	p.t.Helper()
	p.clicks(text)
	guid := testenv.Receive(p.t, "the download of "+text, p.fetched, p.shown)
	data, err := os.ReadFile(filepath.Join(p.downloads, guid))
	testenv.Must(p.t, err)
	return string(data)
}

// withoutScripts stops all scripts of the pages that follow.
func (p *person) withoutScripts() {
	p.t.Helper()
	p.scriptless = true
	p.do(emulation.SetScriptExecutionDisabled(true))
}
