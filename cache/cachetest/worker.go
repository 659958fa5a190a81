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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
)

// workerOrders are those of one process of a storm.
type workerOrders struct {
	Process int
	Dir     string
	Options options
	Logs    string // where all processes write their logs
	Seed    uint64
	Keys    int
	Faulty  bool
	Think   time.Duration // mean time between two operations
	Fate    fate
	Sabotage
}

// fate is how a process ends before its time, or stops.
type fate struct {
	Op     int           // with which of its operations it comes
	Fill   bool          // in the middle of the first fill from there on, not by time
	After  time.Duration // how long after the begin of the operation
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
	j, err := openJournal(o.Logs, o.Process)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in) // the end of it is what counts
		end()
	}()
	opts := o.Options.cache()
	opts.Over = over(o.Logs)
	w := worker{workerOrders: o, journal: j, contents: contents(o.Seed, o.Keys)}
	w.rng = rand.New(rand.NewPCG(o.Seed, uint64(o.Process))) //nolint:gosec // repeatable by design
	w.popular = rand.NewZipf(w.rng, 1.2, 4, uint64(o.Keys-1))
	for ctx.Err() == nil {
		if w.cache, err = cache.Open(o.Dir, opts); err == nil || !o.Faulty || !transient(err) {
			break
		}
	}
	if err != nil {
		w.add(record{Did: didGet, Err: kind(err), Wrong: "open: " + err.Error()})
		return err
	}
	for op := 0; ctx.Err() == nil; op++ {
		if op == w.Fate.Op && w.Fate.Signal != 0 {
			w.meetFate()
		}
		w.operate(ctx)
		pause(ctx, w.about(w.Think))
	}
	w.add(record{Did: didEnd})
	return nil
}

// over tells which holders are over: those of processes that have a file that
// says so.
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

func (w *worker) meetFate() {
	if w.Fate.Fill {
		w.doomed.Store(true)
		return
	}
	time.AfterFunc(w.Fate.After, w.signal)
}

// signal ends or stops this process.
func (w *worker) signal() {
	did := didDie
	if w.Fate.Signal == syscall.SIGSTOP {
		did = didStop
	}
	w.add(record{Did: did})
	_ = syscall.Kill(os.Getpid(), w.Fate.Signal) // it always can
}

// about is a random time with this mean; a few are much longer.
func (w *worker) about(mean time.Duration) time.Duration {
	return time.Duration(min(w.rng.ExpFloat64(), 8) * float64(mean))
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// operate does one thing.
func (w *worker) operate(ctx context.Context) {
	switch r := w.rng.Float64(); {
	case r < .74 || w.Sabotage != "":
		w.use(ctx, w.content(), w.holder())
	case r < .84:
		w.use(ctx, w.content(), "")
	case r < .90:
		w.pin(ctx, w.content(), w.holder())
	case r < .94:
		w.list(ctx)
	case r < .99:
		w.trim(ctx)
	default:
		w.verify(ctx)
	}
}

func (w *worker) content() content { return w.contents[w.popular.Uint64()] }

// holder is a new one.
func (w *worker) holder() cache.Holder {
	w.holders++
	return cache.Holder(fmt.Sprintf("p%d-%d", w.Process, w.holders))
}

// use gets a content, reads it for a while, and unpins it.
func (w *worker) use(ctx context.Context, c content, h cache.Holder) {
	if w.rng.IntN(20) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.about(20*time.Millisecond))
		defer cancel()
	}
	path, fill, ok := w.get(ctx, c, h)
	switch {
	case h == "":
		if ok {
			w.read(ctx, c, path, "", "")
		}
		return
	case ok:
		w.hold(ctx, c, path, fill, h)
	}
	w.unpin(c, fill, h)
}

// hold reads what is pinned, twice.
func (w *worker) hold(ctx context.Context, c content, path, fill string, h cache.Holder) {
	w.read(ctx, c, path, fill, h)
	w.sabotage(c, path, h)
	pause(ctx, w.about(100*time.Millisecond))
	w.read(ctx, c, path, fill, h)
}

// get returns a content's path, and the fill that made it.
func (w *worker) get(ctx context.Context, c content, h cache.Holder) (path, fill string, ok bool) {
	r := record{Did: didGet, Begin: monotonic(), Key: c.n, Holder: string(h)}
	var own atomic.Pointer[string]
	plan := w.plan(c)
	var waited atomic.Bool
	want := cache.Want{
		Key: c.key(), Holder: h, Owner: fmt.Sprint("o", c.n%4), Size: c.size, Resume: w.rng.IntN(2) == 0,
		Waiting: func(string) { waited.Store(true) },
	}
	path, err := w.cache.Get(ctx, want, func(ctx context.Context, tmp string) error {
		fill := w.nextFill()
		own.Store(&fill)
		return w.fill(ctx, c, plan, fill, tmp, want.Resume)
	})
	r.Path, r.Err, r.Waited = path, kind(err), waited.Load()
	if err != nil {
		r.Wrong = w.unexpected(ctx, "get", err)
		w.add(r)
		return "", "", false
	}
	for range w.tries() {
		if fill, err = c.madeBy(path); err == nil || !transient(err) {
			break
		}
		pause(context.Background(), 5*time.Millisecond)
	}
	mine := own.Load()
	r.Fill, r.Err, r.Own = fill, kind(err), mine != nil && fill == *mine
	if err != nil && (h != "" || !gone(err)) {
		r.Wrong = fmt.Sprintf("key %d, holder %q: cannot be read when Get has returned: %v", c.n, h, err)
	}
	w.add(r)
	return path, fill, err == nil
}

// tries is how often reading is tried.
func (w *worker) tries() int {
	if w.Faulty {
		return 40
	}
	return 1
}

// unexpected says that an error has no business to be there.
func (w *worker) unexpected(ctx context.Context, what string, err error) string {
	switch kind(err) {
	case "full", "lost", "broken fill":
		return ""
	case "canceled", "deadline":
		if ctx.Err() != nil {
			return ""
		}
	}
	if w.Faulty && transient(err) {
		return ""
	}
	return what + ": " + err.Error()
}

func (w *worker) nextFill() string {
	return fmt.Sprintf("p%d.%d", w.Process, w.fills.Add(1))
}

// plan is what is to happen in a fill.
type plan struct {
	steps  time.Duration // how long each step of it takes
	last   int           // the step with which it fails or the fate comes
	fails  bool
	panics bool
}

func (w *worker) plan(c content) plan {
	p := plan{last: w.rng.IntN(int(c.size/chunkLen) + len(c.files()))}
	if w.rng.IntN(30) == 0 {
		p.steps = w.about(w.Options.Term / 4)
	}
	n := w.rng.IntN(25)
	p.fails, p.panics = n < 2, n == 0
	return p
}

// fill makes a content, or fails as fills do.
func (w *worker) fill(ctx context.Context, c content, p plan, fill, tmp string, resume bool) error {
	r := record{Did: didFill, Key: c.n, Fill: fill}
	if _, err := os.Lstat(tmp); err == nil && !resume {
		r.Wrong = fmt.Sprintf("key %d: a fill that resumes nothing found something at %s", c.n, tmp)
	}
	w.add(r)
	doomed := w.doomed.Swap(false)
	step := 0
	found, err := c.make(tmp, fill, func() error {
		if p.steps > 0 {
			pause(ctx, p.steps)
		}
		step++
		switch {
		case step <= p.last:
		case doomed:
			doomed = false
			w.signal() // one that was only stopped goes on
		case p.panics:
			w.add(record{Did: didFail, Key: c.n, Fill: fill, Err: kind(errBroken)})
			panic(errBroken)
		case p.fails:
			return errBroken
		}
		return ctx.Err()
	})
	did := didFilled
	if err != nil {
		did = didFail
	}
	w.add(record{Did: did, Key: c.n, Fill: fill, Bytes: found, Err: kind(err)})
	return err
}

// read reads a content, and writes to the log what came of it.
func (w *worker) read(ctx context.Context, c content, path, fill string, h cache.Holder) {
	w.add(w.compare(ctx, c, path, fill, h))
}

// compare compares all bytes of a content. What is pinned has to be there, made
// by the same fill as before.
func (w *worker) compare(ctx context.Context, c content, path, fill string, h cache.Holder) record {
	r := record{Did: didRead, Begin: monotonic(), Key: c.n, Holder: string(h), Path: path}
	var err error
	for range w.tries() {
		r.Fill, r.Bytes, err = c.check(path, func() {
			if w.rng != nil {
				pause(ctx, w.about(time.Millisecond))
			}
		})
		if err == nil || !transient(err) {
			break
		}
	}
	r.Err = kind(err)
	switch {
	case err == nil && (h == "" || r.Fill == fill):
	case err == nil:
		r.Wrong = fmt.Sprintf("key %d: fill %s was replaced by %s while %s pinned it", c.n, fill, r.Fill, h)
	case h != "":
		r.Wrong = fmt.Sprintf("key %d: fill %s cannot be read while %s pins it: %v", c.n, fill, h, err)
	case gone(err), errors.Is(err, errMixed), w.Faulty && transient(err):
	default:
		r.Wrong = fmt.Sprintf("key %d: %v", c.n, err)
	}
	return r
}

func (w *worker) unpin(c content, fill string, h cache.Holder) {
	w.add(record{Did: didUnpin, Key: c.n, Fill: fill, Holder: string(h)})
	for {
		err := w.cache.Unpin(context.Background(), h)
		if err == nil {
			return
		}
		if wrong := w.unexpected(context.Background(), "unpin", err); wrong != "" {
			w.add(record{Did: didUnpin, Err: kind(err), Wrong: wrong})
			return
		}
	}
}

// pin pins what may be there, or not, and then gets it.
func (w *worker) pin(ctx context.Context, c content, h cache.Holder) {
	r := record{Did: didPin, Begin: monotonic(), Key: c.n, Holder: string(h)}
	err := w.cache.Pin(ctx, c.key(), false, h)
	if r.Err = kind(err); err != nil {
		r.Wrong = w.unexpected(ctx, "pin", err)
	}
	w.add(r)
	fill := ""
	if err == nil {
		var path string
		var ok bool
		if path, fill, ok = w.get(ctx, c, h); ok {
			w.hold(ctx, c, path, fill, h)
		}
	}
	w.unpin(c, fill, h)
}

func (w *worker) list(ctx context.Context) {
	_, entriesErr := w.cache.Entries(ctx)
	_, pinsErr := w.cache.Pins()
	_, usageErr := w.cache.Usage()
	err := errors.Join(entriesErr, pinsErr, usageErr)
	r := record{Did: didList, Err: kind(err)}
	if err != nil {
		r.Wrong = w.unexpected(ctx, "list", err)
	}
	w.add(r)
}

func (w *worker) trim(ctx context.Context) {
	done, err := w.cache.Trim(ctx, cache.TrimOptions{DryRun: w.rng.IntN(8) == 0})
	r := record{Did: didTrim, N: done.Removed, Err: kind(err)}
	if err != nil {
		r.Wrong = w.unexpected(ctx, "trim", err)
	}
	w.add(r)
}

func (w *worker) verify(ctx context.Context) {
	err := w.cache.Verify(ctx, func(e cache.Entry, err error) {
		if err != nil && ctx.Err() == nil && (!w.Faulty || !transient(err)) {
			w.add(record{Did: didVerify, Err: kind(err), Wrong: fmt.Sprintf("entry %s of %s is called damaged: %v", e.Hash, e.Key, err)})
		}
	})
	r := record{Did: didVerify, Err: kind(err)}
	if err != nil {
		r.Wrong = w.unexpected(ctx, "verify", err)
	}
	w.add(r)
}
