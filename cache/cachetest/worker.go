package cachetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// workerOrders are for one process of a storm.
type workerOrders struct {
	Process  int
	Dir      string
	Options  cache.Options
	Logs     string // directory for the logs of all processes
	Remote   bool   // the hosts are machines
	Seed     uint64
	Keys     int
	Faulty   bool
	Think    time.Duration // mean time between two operations
	Fate     fate
	Sabotage sabotage
}

// fate is the time at which a process is killed or stopped.
type fate struct {
	Op     int           // the operation at which it comes
	Fill   bool          // in the middle of the next fill, instead of by time
	After  time.Duration // the delay from the begin of the operation
	Signal syscall.Signal
}

// worker is a process of a storm.
type worker struct {
	workerOrders
	*journal
	cache    *cache.Cache
	rng      *rand.Rand
	contents []content
	popular  *rand.Zipf
	holders  int
	fills    atomic.Int64
	doomed   atomic.Bool // the fate comes with the next fill
}

func (o workerOrders) run(in io.Reader) error {
	j, err := openJournal(o.Logs, o.Process, o.Remote)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() {
		_, _ = io.Copy(io.Discard, in) // waits for its end
		end()
	})
	o.Options.Over = over(o.Logs)
	w := worker{workerOrders: o, journal: j, contents: contents(o.Seed, o.Keys)}
	w.rng = rand.New(rand.NewPCG(o.Seed, uint64(o.Process)))
	w.popular = rand.NewZipf(w.rng, 1.2, 4, uint64(o.Keys-1))
	err = w.patiently(func() (err error) {
		w.cache, err = cache.Open(o.Dir, o.Options)
		return err
	})
	if err != nil {
		w.add(record{Did: didGet, Err: kind(err), Wrong: "open: " + err.Error()})
		return err
	}
	for op := 0; ctx.Err() == nil; op++ {
		if op == w.Fate.Op && w.Fate.Signal != 0 {
			w.scheduleFate()
		}
		w.operate(ctx)
		_ = pause.For(ctx, w.about(w.Think))
	}
	watch.Wait()
	w.add(record{Did: didEnd})
	return nil
}

// over returns an Options.Over by which a holder is over when the storm has made a file for its
// process.
func over(logs string) func(context.Context, []cache.Holder) (map[cache.Holder]bool, error) {
	return func(_ context.Context, holders []cache.Holder) (map[cache.Holder]bool, error) {
		ended := map[cache.Holder]bool{}
		for _, h := range holders {
			process, _, _ := strings.Cut(string(h), "-")
			_, err := os.Stat(filepath.Join(logs, process+".over"))
			ended[h] = err == nil
		}
		return ended, nil
	}
}

func (w *worker) scheduleFate() {
	if w.Fate.Fill {
		w.doomed.Store(true)
		return
	}
	time.AfterFunc(w.Fate.After, w.signal)
}

// signal kills or stops this process.
func (w *worker) signal() {
	w.add(record{Did: didSignal, Err: w.Fate.Signal.String()})
	_ = syscall.Kill(os.Getpid(), w.Fate.Signal) // it cannot fail
}

// about returns a random time with this mean. A few are much longer.
func (w *worker) about(mean time.Duration) time.Duration {
	return time.Duration(min(w.rng.ExpFloat64(), 8) * float64(mean))
}

// operate does one random operation.
func (w *worker) operate(ctx context.Context) {
	c := w.contents[w.popular.Uint64()]
	w.holders++
	h := cache.Holder(fmt.Sprintf("p%d-%d", w.Process, w.holders))
	switch r := w.rng.Float64(); {
	case r < .74 || w.Sabotage != "":
		w.use(ctx, c, h)
	case r < .84:
		w.use(ctx, c, "")
	case r < .90:
		keeper := h + "-key" // a trim may move its pin, so it must not read the content
		w.note(ctx, record{Did: didPin, Key: c.n, Holder: string(keeper)}, w.cache.Pin(ctx, c.key(), false, keeper))
		w.use(ctx, c, h)
		w.unpin(ctx, c, keeper)
	case r < .94:
		_, entriesErr := w.cache.Entries(ctx)
		_, pinsErr := w.cache.Pins()
		_, usageErr := w.cache.Usage()
		w.note(ctx, record{Did: didList}, errors.Join(entriesErr, pinsErr, usageErr))
	case r < .99:
		done, err := w.cache.Trim(ctx, cache.TrimOptions{DryRun: w.rng.IntN(8) == 0})
		w.note(ctx, record{Did: didTrim, N: done.Removed}, err)
	default:
		w.note(ctx, record{Did: didVerify}, w.cache.Verify(ctx, func(e cache.Entry, err error) {
			if err != nil && ctx.Err() == nil && (!w.Faulty || !transient(err)) {
				w.add(record{Did: didVerify, Err: kind(err), Wrong: fmt.Sprintf("entry %s of %s is called damaged: %v", e.Hash, e.Key, err)})
			}
		}))
	}
}

// note logs an operation and its error.
func (w *worker) note(ctx context.Context, r record, err error) {
	r.Err, r.Wrong = kind(err), w.unexpected(ctx, r.Did, err)
	w.add(r)
}
