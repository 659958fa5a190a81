package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store/storetest"
)

// benchPages measures the web pages of cl-server as a browser meets them, over TCP on loopback, with SQLite in memory.
func benchPages(ctx context.Context) {
	measureSections([]section{
		{"reads", inMemory, func(dir string) { benchPageReads(ctx, dir) }},
		{"sweep", inMemory, func(dir string) { benchSweepPage(ctx, dir) }},
		{"streams", inMemory, func(dir string) { benchPageStreams(ctx, dir) }},
	})
}

// pageReader gets pages as a user who has signed in.
type pageReader struct {
	address, token string
	client         *http.Client
}

// open begins to get a page.
func (p pageReader) open(ctx context.Context, path string) *http.Response {
	r := must(http.NewRequestWithContext(ctx, http.MethodGet, p.address+path, nil))
	r.AddCookie(&http.Cookie{Name: rest.SessionCookie, Value: p.token})
	resp := must(p.client.Do(r))
	if resp.StatusCode != http.StatusOK {
		check(fmt.Errorf("%s: %s", path, resp.Status))
	}
	return resp
}

// milliseconds is the time for all of a page.
func (p pageReader) milliseconds(ctx context.Context, path string) float64 {
	return 1000 * seconds(func() {
		resp := p.open(ctx, path)
		must(io.Copy(io.Discard, resp.Body))
		check(resp.Body.Close())
	})
}

// benchPageReads measures the page of a bundle, and that of a worksheet of 1,000 bundles, among 10,000 bundles.
func benchPageReads(ctx context.Context, dir string) {
	const sheet, items, bundles, rounds = "paged", 1000, 10_000, 9
	data := filepath.Join(dir, "data")
	token := fillData(ctx, data, bundles)
	s := startServer(ctx, data)
	defer s.end()
	api := signedIn(s.address, token)
	makeWorksheet(ctx, api, sheet, items)
	found := must(api.SearchWorksheets(ctx, "name="+sheet))
	w := must(api.WorksheetBundles(ctx, found[0].UUID, "name"))
	p := pageReader{s.address, token, &http.Client{}}
	var one, all []float64
	for _, b := range w.Bundles {
		one = append(one, p.milliseconds(ctx, "/bundles/"+b.UUID))
	}
	for range rounds {
		all = append(all, p.milliseconds(ctx, "/worksheets/"+w.UUID))
	}
	slices.Sort(one)
	figure{name: "pages/bundle_p95", value: one[len(one)*95/100], unit: "ms", bar: 15}.print()
	figure{name: "pages/worksheet_1000", value: median(all), unit: "ms", bar: 80}.print()
}

// benchSweepPage measures the page of a sweep of 1,000 members, with two values of each that its reader has chosen.
func benchSweepPage(ctx context.Context, dir string) {
	const members, rounds = 1000, 9
	data := filepath.Join(dir, "data")
	token := fillData(ctx, data, members*storetest.Users)
	check(storetest.AddValues(ctx, data))
	s := startServer(ctx, data)
	defer s.end()
	api := signedIn(s.address, token)
	sheet := must(api.CreateWorksheet(ctx, "swept"))
	found, _, err := api.SearchBundles(ctx, "", []string{".mine", fmt.Sprint(".limit=", members)})
	check(err)
	if len(found) != members {
		check(fmt.Errorf("the server found %d of %d bundles", len(found), members))
	}
	var items []client.Item
	var changes []client.BundleChange
	for i, b := range found {
		tags := codalab.SweepTags(sheet.UUID, []codalab.Setting{{Name: "seed", Value: strconv.Itoa(i)}})
		changes = append(changes, client.BundleChange{UUID: b.UUID, BundleEdit: codalab.BundleEdit{Type: b.Type, Metadata: codalab.Metadata{"tags": tags}}})
		items = append(items, client.Item{WorksheetItem: codalab.WorksheetItem{Type: codalab.ItemBundle}, Bundle: &b})
	}
	must(api.UpdateBundles(ctx, changes...))
	check(api.AddItems(ctx, sheet.UUID, items, false))
	jar := must(cookiejar.New(nil))
	p := pageReader{s.address, token, &http.Client{Jar: jar}}
	path := "/sweeps/" + sheet.UUID
	r := must(http.NewRequestWithContext(ctx, http.MethodPost, s.address+path+"/columns", strings.NewReader("column=/stats.json:acc&column=/stats.json:loss")))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.AddCookie(&http.Cookie{Name: rest.SessionCookie, Value: token})
	resp, err := p.client.Do(r)
	check(err)
	shown := string(must(io.ReadAll(resp.Body)))
	check(resp.Body.Close())
	if !strings.Contains(shown, `value="/stats.json:loss" checked`) {
		check(fmt.Errorf("%s does not show the chosen values: %s", path, resp.Status))
	}
	var all []float64
	for range rounds {
		all = append(all, p.milliseconds(ctx, path))
	}
	figure{name: "pages/sweep_1000", value: median(all), unit: "ms"}.print()
}

// benchPageStreams measures 1,000 open lists of 20 users, while another user's bundles change.
func benchPageStreams(ctx context.Context, dir string) {
	const streams, users, watched = 1000, 20, 20 * time.Second
	data := filepath.Join(dir, "data")
	var names []string
	for i := range users {
		names = append(names, fmt.Sprintf("user%d", i))
	}
	tokens := makeUsers(ctx, data, names...)
	s := startServer(ctx, data)
	defer s.end()
	other := newCoreUser(ctx, signedIn(s.address, tokens["ann"]), "python:3")
	must(other.create(ctx, "none"))
	before := residentMB(s.pid)
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	opened := make([]*bufio.Scanner, streams)
	await := func(text string) error {
		var group errgroup.Group
		group.SetLimit(atOnce)
		for i := range streams {
			group.Go(func() error {
				if opened[i] == nil {
					from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%users))}
					p := pageReader{s.address, tokens[names[i%users]], &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: from}).DialContext}}}
					opened[i] = bufio.NewScanner(p.open(ctx, "/runs/events?q=.mine").Body) //nolint:bodyclose // it is open until leave
				}
				for opened[i].Scan() {
					if strings.Contains(opened[i].Text(), text) {
						return nil
					}
				}
				return fmt.Errorf("a stream has ended before %q: %w", text, opened[i].Err())
			})
		}
		return group.Wait()
	}
	check(await("No bundle matches."))
	begun, used := time.Now(), s.cpu()
	for time.Since(begun) < watched {
		must(other.create(ctx, "none"))
		time.Sleep(time.Second)
	}
	figure{name: "pages/streams_1000_cpu", value: 100 * (s.cpu() - used) / time.Since(begun).Seconds(), unit: "% of a core", bar: 5}.print()
	whole := residentMB(s.pid)
	figure{name: "pages/streams_1000_memory", value: whole - before, unit: "MB", bar: 60}.print() // the server keeps what its start took
	figure{name: "pages/streams_1000_memory_whole", value: whole, unit: "MB"}.print()
	// All of them are there still, and follow.
	took := seconds(func() {
		for _, name := range names {
			must(newCoreUser(ctx, signedIn(s.address, tokens[name]), "python:3").create(ctx, "none"))
		}
		check(await("<tbody>"))
	})
	figure{name: "pages/streams_1000_told", value: took, unit: "s"}.print()
}
