package browsertest

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

var measure = flag.Bool("measure", false, "measure the pages on a slow phone's line")

// Lighthouse's phone on a slow line: a processor of a quarter of the speed, 150 ms to the server and back, and 1.6 Mbit/s.
const (
	slower       = 4
	roundTrip    = 150
	bytesASecond = 1.6e6 / 8
)

// TestMeasure prints figures as scripts/bench does (make bench-browser): the time until a page is seen first, and its requests and bytes,
// each with empty caches.
func TestMeasure(t *testing.T) { //nolint:paralleltest // others would slow it
	if !*measure {
		t.Skip("measures nothing without -measure")
	}
	const runs, rounds = 100, 5
	s := newSite(t, "ann")
	home := s.home("ann")
	s.write("sweep", strings.Repeat("x", 10))
	s.cl("ann", "run", "--each", fmt.Sprintf("lr=1..%d", runs), "python train.py --learning-rate {lr} --epochs 100", "-n", "train", "--sweep", "rates")
	uuids := strings.Fields(s.cl("ann", "search", ".mine", "type=run", fmt.Sprint(".limit=", runs), "--uuid-only"))
	if len(uuids) != runs {
		t.Fatalf("there are %d runs", len(uuids))
	}
	lines := []string{"# A hundred runs", ""}
	for _, uuid := range uuids {
		lines = append(lines, "[run]{"+uuid+"}")
	}
	s.cl("ann", "wedit", home, "--file", s.write("lines", strings.Join(lines, "\n")+"\n"))
	for _, page := range []struct{ name, path string }{
		{"signin", "/signin"}, {"runs_100", "/runs"}, {"bundle", "/bundles/" + uuids[0]}, {"worksheet_100", "/worksheets/" + home},
	} {
		var paints, bytes, requests []float64
		for range rounds {
			p := s.visit(phone)
			if page.name != "signin" {
				p.signIn("ann")
			}
			v := p.loadSlowly(page.path)
			p.leave() // else its page takes a part of the browser's time from those that follow
			paints, bytes, requests = append(paints, v.paint), append(bytes, v.bytes), append(requests, v.requests)
		}
		figure("pages/"+page.name+"_first_paint", paints, "ms", 1000)
		figure("pages/"+page.name+"_bytes", bytes, "B", 150_000)
		figure("pages/"+page.name+"_requests", requests, "requests", 0)
	}
}

// figure prints the median of values, in the format of scripts/bench.
func figure(name string, values []float64, unit string, bar float64) {
	slices.Sort(values)
	value, limit, verdict := values[len(values)/2], "-", "met"
	if bar > 0 {
		limit = fmt.Sprint(bar)
	}
	if bar > 0 && value > bar {
		verdict = "short"
	}
	fmt.Printf("bench: %s %.0f %s ratio=- against=- bar=%s %s\n", name, value, unit, limit, verdict)
}

// load is what a page takes.
type load struct{ paint, bytes, requests float64 }

// loadSlowly loads a page on a slow phone's line. Files of bundles do not count.
func (p *person) loadSlowly(path string) load {
	p.t.Helper()
	var v load
	contents := map[network.RequestID]bool{}
	p.do(network.Enable(), network.SetCacheDisabled(true), network.ClearBrowserCache(), emulation.SetCPUThrottlingRate(slower),
		network.EmulateNetworkConditions(false, roundTrip, bytesASecond, bytesASecond))
	chromedp.ListenTarget(p.ctx, func(event any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			contents[e.RequestID] = strings.Contains(e.Request.URL, "/contents/blob/") || strings.HasPrefix(e.Request.URL, "data:")
			if !contents[e.RequestID] {
				v.requests++
			}
		case *network.EventLoadingFinished:
			if !contents[e.RequestID] {
				v.bytes += e.EncodedDataLength
			}
		}
	})
	p.goTo(path)
	const first = `performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0`
	p.await("the page is seen, and at rest", func() bool {
		return evaluate[float64](p, first) > 0 && evaluate[string](p, `document.readyState`) == "complete"
	})
	v.paint = evaluate[float64](p, first)
	p.mu.Lock()
	defer p.mu.Unlock()
	return v
}
