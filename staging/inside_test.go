package staging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/staging/fetch"
)

func key(i int) cache.Key { return cache.Key{Kind: "bundle", ID: fmt.Sprint(i)} }

func TestBundleWithAHundredDependenciesKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, b := &turns{free: 4}, &board{}
		var all sync.WaitGroup
		var mu sync.Mutex
		ended := map[string]time.Duration{}
		running, most := 0, 0
		began := time.Now()
		get := func(bundle string, i int) {
			all.Go(func() {
				d := b.join(key(i), bundle)
				defer b.leave(key(i), d, bundle)
				err := q.do(t.Context(), d, func() error {
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
		shared := b.join(key(99), "patient") // also wanted by the large one, last in the queue
		synctest.Wait()
		all.Wait()
		b.leave(key(99), shared, "patient")
		for i := range 3 {
			if took := ended[fmt.Sprint("small ", i)]; took > 3*time.Minute {
				t.Errorf("small bundle %d waited %v", i, took)
			}
		}
		if most != 4 || ended["large"] != 26*time.Minute || q.taken() != 0 || len(b.downloads) != 0 {
			t.Errorf("%d at a time, all after %v, %d places taken, %d downloads known", most, ended["large"], q.taken(), len(b.downloads))
		}
	})
}

func TestWaiterThatLeavesTakesNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, b := &turns{free: 1}, &board{}
		ctx, leave := context.WithCancel(t.Context())
		release := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			_ = q.do(t.Context(), b.join(key(1), "a"), func() error { <-release; return nil })
		})
		synctest.Wait()
		waiting := b.join(key(2), "b")
		all.Go(func() {
			if err := q.do(ctx, waiting, func() error { t.Error("it had a turn"); return nil }); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		if s := waiting.look(time.Now()); s.stage != queued {
			t.Errorf("it is at stage %d", s.stage)
		}
		leave()
		synctest.Wait()
		close(release)
		all.Wait()
		if q.free != 1 || len(q.queue) != 0 || waiting.queued != 0 || waiting.holding != 0 {
			t.Errorf("left behind: %+v", q)
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
	d, now := &download{}, time.Unix(1_800_000_000, 0)
	for i := range 60 { // ten a second for half a minute, then a thousand
		if i < 30 {
			d.done.Add(10)
		} else {
			d.done.Add(1000)
		}
		d.look(now.Add(time.Duration(i) * time.Second))
	}
	if s := d.look(now.Add(59 * time.Second)); s.rate != 1000 || len(d.samples) > 10 {
		t.Errorf("%d a second, of %d samples", s.rate, len(d.samples))
	}
	if s := d.look(now.Add(2 * time.Minute)); s.rate != 0 {
		t.Errorf("%d a second after a minute without any", s.rate)
	}
}

func TestSentences(t *testing.T) {
	t.Parallel()
	const g, m = 1 << 30, 1 << 20
	image := func(s standing) view { return view{name: "image python:3", image: true, standing: s} }
	data := func(s standing) view { return view{name: "dependency data (corpus)", standing: s} }
	other := func(s standing) view { return view{name: "dependency vocab (words)", standing: s} }
	half := standing{stage: moving, done: 1288490189, total: 4 * g, rate: 95 * m}
	there := view{name: "dependency x", there: true}
	for want, parts := range map[string][]view{
		"": {image(standing{}), data(standing{})},
		"Downloading dependency data (corpus): 1.2g of 4g at 95m/s.":                                    {image(standing{}), data(half)},
		"Downloading dependency data (corpus): 0.":                                                      {data(standing{stage: moving})},
		"Downloading 2 dependencies: 2.4g of 8g at 190m/s.":                                             {data(half), other(half)},
		"Downloading 2 dependencies: 1.2g at 95m/s.":                                                    {data(half), other(standing{stage: moving})},
		"Downloading dependency data (corpus) (1 of 2 are there): 1.2g of 4g at 95m/s.":                 {there, data(half)},
		"Downloading dependency data (corpus) and pulling image python:3: 2.4g of 8g at 190m/s.":        {data(half), image(half)},
		"Pulling image python:3: 1.2g of 4g at 95m/s.":                                                  {image(half), {name: "dependency y"}},
		"Converting image python:3: 1g of 2g.":                                                          {image(standing{stage: converting, done: g, total: 2 * g, rate: m})},
		"Downloading dependency data (corpus): 1.2g of 4g at 95m/s; converting image python:3: 0.":      {data(half), image(standing{stage: converting})},
		"Waiting for dependency data (corpus), which another process fetches (host login2, process 7).": {data(standing{stage: elsewhere, by: "host login2, process 7"})},
		"Asking ghcr.io for image python:3.":                                                            {image(standing{stage: asking, by: "ghcr.io"}), there},
		"Storing image python:3.":                                                                       {image(standing{stage: storing, done: g, total: g})},
		"Waiting for 3 other downloads.":                                                                {image(standing{}), data(standing{stage: queued})},
		"Waiting for 1 other download.":                                                                 {image(standing{stage: queued}), there},
	} {
		others := func(images bool) int {
			if images {
				return 1
			}
			return 3
		}
		if got := sentence(parts, others); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestFailuresAreTheBundlesOrAnOutageOrNeither(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err         error
		retry, away bool
	}{
		"no answer":             {&codalab.Error{Message: "cannot reach the server"}, true, true},
		"server in trouble":     {&codalab.Error{Status: 502}, true, true},
		"password was changed":  {&codalab.Error{Status: 401}, true, true},
		"not found":             {&codalab.Error{Status: 404}, false, false},
		"forbidden":             {&codalab.Error{Status: 403}, false, false},
		"connections break off": {fmt.Errorf("%w: EOF", fetch.ErrBroken), true, true},
		"disk is full":          {&pathError{syscall.ENOSPC}, true, true},
		"quota of the disk":     {&pathError{syscall.EDQUOT}, true, true},
		"cache is full":         {fmt.Errorf("get: %w", cache.ErrFull), true, true},
		"sizes differ":          {fetch.ErrDiffers, true, false},
		"broken archive":        {tarstream.ErrFormat, true, false},
		"unsafe archive":        {tarstream.ErrUnsafe, false, false},
		"too large":             {tarstream.ErrTooLarge, false, false},
		"a link":                {fetch.ErrLink, false, false},
		"something else":        {errors.New("something"), true, false},
	} {
		var e *Error
		if err := dependencyError("dependency x", c.err); !errors.As(err, &e) || e.Transient() != c.retry || e.Outage() != c.away {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

type pathError struct{ errno syscall.Errno }

func (e *pathError) Error() string { return "write x: " + e.errno.Error() }
func (e *pathError) Unwrap() error { return e.errno }

// What may pass must not end a download that goes well; what is final ends all.
func TestFailureThatMayPassLetsTheOthersFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Stager{}
		for _, retry := range []bool{true, false} {
			finished := false
			err := s.all(t.Context(), 2, func(ctx context.Context, i int) error {
				if i == 0 {
					return &Error{What: "x", Err: errors.New("no"), Retry: retry}
				}
				select {
				case <-ctx.Done():
					return &Error{What: "y", Err: ctx.Err(), Retry: true}
				case <-time.After(time.Hour):
					finished = true
					return nil
				}
			})
			var e *Error
			if !errors.As(err, &e) || e.What != "x" || finished != retry {
				t.Errorf("retry %v: error %v, the other finished: %v", retry, err, finished)
			}
		}
	})
}
