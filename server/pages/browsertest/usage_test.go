package browsertest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// holds lets a page wait for a file until the caller calls release.
func (p *person) holds(file string) (release func()) {
	p.t.Helper()
	var mu sync.Mutex
	var held []fetch.RequestID
	released := false
	page := cdp.WithExecutor(p.ctx, chromedp.FromContext(p.ctx).Target)
	chromedp.ListenTarget(p.ctx, func(event any) {
		e, ok := event.(*fetch.EventRequestPaused)
		if !ok {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if released {
			go func() { _ = fetch.ContinueRequest(e.RequestID).Do(page) }() // a listener must not wait for the browser
		} else {
			held = append(held, e.RequestID)
		}
	})
	p.do(fetch.Enable().WithPatterns([]*fetch.RequestPattern{{URLPattern: "*" + file + "*"}}))
	return func() {
		p.t.Helper()
		mu.Lock()
		defer mu.Unlock()
		released = true
		for _, id := range held {
			p.do(fetch.ContinueRequest(id))
		}
	}
}

const useCharts = `document.querySelector(".charts[sse-swap=usage-charts]")`

// The charts of a run's use are drawn once their scripts are there, which may come after the first numbers, and follow the run.
func TestChartsOfUseFollowTheRun(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	s.startWorker()
	p := s.visit(desk)
	p.signIn("ann")
	release := p.holds("uplot.min.js")
	run := s.cl("ann", "run", "until [ -e "+s.dir+"/go ]; do sleep 0.1; done", "-n", "measured")
	// The page counts as loaded only once its scripts are.
	p.do(chromedp.ActionFunc(func(ctx context.Context) error {
		_, _, _, _, err := cdppage.Navigate(s.address + "/bundles/" + run).Do(ctx)
		return err
	}))
	p.sees("Use over time", "CPUs: 0.5 of 1 on average.")
	p.await("the first message of the stream", func() bool {
		return evaluate[bool](p, useCharts+`.textContent !== "" || JSON.parse(`+useCharts+`.nextElementSibling.textContent).curves.length === 4`)
	})
	if text := evaluate[string](p, useCharts+`.textContent`); text != "" || strings.Contains(p.shown(), `"curves"`) {
		t.Fatalf("before its scripts are there, the chart shows %q: %s", text, p.shown())
	}
	const height = useCharts + `.getBoundingClientRect().height`
	room := evaluate[float64](p, height)
	release()
	p.await("the charts are drawn", func() bool {
		return evaluate[bool](p, `(() => {
			const canvases = [...`+useCharts+`.querySelectorAll("canvas")];
			return canvases.length === 4 && canvases.every((c) => c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((colour) => colour));
		})()`)
	})
	if drawn := evaluate[float64](p, height); drawn != room {
		t.Errorf("the page kept %g pixels for the charts, which take %g", room, drawn)
	}
	if names := evaluate[[]string](p, `[...`+useCharts+`.querySelectorAll("figcaption")].map((c) => c.textContent)`); !slices.Equal(names, []string{"CPUs", "Memory in GiB", "GPUs, busy in %", "GPU memory in GiB"}) {
		t.Errorf("the charts are %q", names)
	}
	p.do(chromedp.Evaluate(`window.notReloaded = true`, nil))
	const points = `[...` + useCharts + `.plots.values()].map((plot) => plot.data[0].length)`
	before := evaluate[[]int](p, points)
	p.await("the charts follow the run", func() bool {
		now := evaluate[[]int](p, points)
		return len(now) == 4 && !slices.ContainsFunc([]int{0, 1, 2, 3}, func(i int) bool { return now[i] <= before[i] })
	})
	if !evaluate[bool](p, `window.notReloaded === true`) {
		t.Error("the page was loaded again")
	}
	p.do(chromedp.Evaluate(`window.heights = new Set()
		new MutationObserver(() => setTimeout(() => heights.add(`+height+`))).observe(document.body, {childList: true, subtree: true})`, nil))
	s.write("go", "")
	p.sees("ready", "Files")
	if seen := evaluate[[]float64](p, `[...heights]`); !slices.Equal(seen, []float64{room}) {
		t.Errorf("at the end of the run, the charts took %v pixels one after the other, %g before", seen, room)
	}
	p.goTo("/bundles/" + run)
	p.await("the charts are there after the end", func() bool {
		return evaluate[int](p, useCharts+`.querySelectorAll("canvas").length`) == 4
	})
	if said := s.cl("ann", "info", "--usage", run); !strings.HasPrefix(said, "CPUs: 0.5 of 1 on average.") {
		t.Errorf("cl says %s", said)
	}
}
