package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/turns"
)

func TestLargeBundleDoesNotHoldOthersUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(8)
		var all sync.WaitGroup
		var mu sync.Mutex
		ended := map[string]time.Duration{}
		running, most := 0, 0
		began := time.Now()
		get := func(bundle string, i int) {
			all.Go(func() {
				d, leave := r.Join(fmt.Sprint(i), turns.Party{Owner: "ann", Bundle: bundle})
				defer leave()
				err := d.InTurn(t.Context(), func() error {
					mu.Lock()
					running++
					most = max(most, running)
					mu.Unlock()
					time.Sleep(time.Minute)
					mu.Lock()
					defer mu.Unlock()
					running--
					ended[bundle] = time.Since(began)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		for i := range 100 {
			get("large", i)
		}
		synctest.Wait()
		for i := range 3 {
			get(fmt.Sprint("small ", i), 100+i)
		}
		_, leave := r.Join("99", turns.Party{Owner: "ann", Bundle: "last"}) // also wanted by the large one, last in the queue
		synctest.Wait()
		all.Wait()
		leave()
		for i := range 3 {
			if took := ended[fmt.Sprint("small ", i)]; took > 3*time.Minute {
				t.Errorf("small bundle %d waited %v", i, took)
			}
		}
		if most != 4 || ended["large"] != 26*time.Minute || r.turns.Taken() != 0 || len(r.transfers) != 0 {
			t.Errorf("%d at a time, all after %v, %d turns taken, %d transfers known", most, ended["large"], r.turns.Taken(), len(r.transfers))
		}
	})
}

func TestWaiterThatLeavesTakesNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(1)
		ctx, leave := context.WithCancel(t.Context())
		release := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			first, leave := r.Join("1", turns.Party{Owner: "a"})
			defer leave()
			_ = first.InTurn(t.Context(), func() error { <-release; return nil })
		})
		synctest.Wait()
		waiting, _ := r.Join("2", turns.Party{Owner: "b"})
		all.Go(func() {
			if err := waiting.InTurn(ctx, func() error { t.Error("it had a turn"); return nil }); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		if p := waiting.Progress(time.Now()); p.Stage != Queued || p.Ahead != 1 {
			t.Errorf("it is at %+v", p)
		}
		leave()
		synctest.Wait()
		close(release)
		all.Wait()
		if r.turns.Taken() != 0 || len(waiting.tickets) != 0 {
			t.Errorf("left behind: %d turns, %d tickets", r.turns.Taken(), len(waiting.tickets))
		}
	})
}

func TestPaceBoundsAllReadersTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPace(1 << 20)
		began := time.Now()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if n, err := io.Copy(io.Discard, p.Reader(t.Context(), bytes.NewReader(make([]byte, 5<<20)))); err != nil || n != 5<<20 {
					t.Error(n, err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took < 19*time.Second || took > 21*time.Second {
			t.Errorf("20 MiB took %v at 1 MiB a second", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := io.Copy(io.Discard, p.Reader(ctx, bytes.NewReader(make([]byte, 5<<20)))); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

func TestRateIsThatOfTheLastSeconds(t *testing.T) {
	t.Parallel()
	d, now := &Transfer{}, time.Unix(1_800_000_000, 0)
	for i := range 60 { // ten a second for half a minute, then a thousand
		if i < 30 {
			d.SetBytes(d.Done()+10, 0)
		} else {
			d.SetBytes(d.Done()+1000, 0)
		}
		d.Progress(now.Add(time.Duration(i) * time.Second))
	}
	if s := d.Progress(now.Add(59 * time.Second)); s.Rate != 1000 || len(d.samples) > 10 {
		t.Errorf("%d a second, of %d samples", s.Rate, len(d.samples))
	}
	if s := d.Progress(now.Add(2 * time.Minute)); s.Rate != 0 {
		t.Errorf("%d a second after a minute without any", s.Rate)
	}
}

func TestSentences(t *testing.T) {
	t.Parallel()
	const g, m = 1 << 30, 1 << 20
	image := func(p Progress) view { return view{name: "image python:3", image: true, Progress: p} }
	data := func(p Progress) view { return view{name: "dependency data (corpus)", Progress: p} }
	other := func(p Progress) view { return view{name: "dependency vocab (words)", Progress: p} }
	half := Progress{Stage: Pulling, Done: 1288490189, Total: 4 * g, Rate: 95 * m}
	there := view{name: "dependency x", there: true}
	for want, parts := range map[string][]view{
		"": {image(Progress{}), data(Progress{})},
		"Downloading dependency data (corpus): 1.2g of 4g at 95m/s.":                                    {image(Progress{}), data(half)},
		"Downloading dependency data (corpus): 0.":                                                      {data(Progress{Stage: Pulling})},
		"Downloading 2 dependencies: 2.4g of 8g at 190m/s.":                                             {data(half), other(half)},
		"Downloading 2 dependencies: 1.2g at 95m/s.":                                                    {data(half), other(Progress{Stage: Pulling})},
		"Downloading dependency data (corpus) (1 of 2 are there): 1.2g of 4g at 95m/s.":                 {there, data(half)},
		"Downloading dependency data (corpus) and pulling image python:3: 2.4g of 8g at 190m/s.":        {data(half), image(half)},
		"Pulling image python:3: 1.2g of 4g at 95m/s.":                                                  {image(half), {name: "dependency y"}},
		"Converting image python:3: 1g of 2g.":                                                          {image(Progress{Stage: Converting, Done: g, Total: 2 * g, Rate: m})},
		"Downloading dependency data (corpus): 1.2g of 4g at 95m/s; converting image python:3: 0.":      {data(half), image(Progress{Stage: Converting})},
		"Waiting for dependency data (corpus), which another process fetches (host login2, process 7).": {data(Progress{Stage: Elsewhere, By: "host login2, process 7"})},
		"Asking ghcr.io for image python:3.":                                                            {image(Progress{Stage: Asking, By: "ghcr.io"}), there},
		"Storing image python:3.":                                                                       {image(Progress{Stage: Storing, Done: g, Total: g})},
		"Waiting for 3 other downloads.":                                                                {image(Progress{}), data(Progress{Stage: Queued, Ahead: 3})},
		"Waiting for 1 other download.":                                                                 {image(Progress{Stage: Queued, Ahead: 1}), there},
	} {
		if got := describe(parts); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
