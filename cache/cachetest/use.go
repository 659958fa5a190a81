package cachetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
)

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
	w.unpin(ctx, c, fill, h)
}

// hold reads what is pinned, twice.
func (w *worker) hold(ctx context.Context, c content, path, fill string, h cache.Holder) {
	w.read(ctx, c, path, fill, h)
	w.sabotage(ctx, c, path, h)
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
		pause(context.WithoutCancel(ctx), 5*time.Millisecond)
	}
	mine := own.Load()
	r.Fill, r.Err, r.Own = fill, seen(err, h), mine != nil && fill == *mine
	if err != nil && (h != "" || !gone(err)) {
		r.Wrong = fmt.Sprintf("key %d, holder %q: cannot be read when Get has returned: %v", c.n, h, err)
	}
	w.add(r)
	return path, fill, err == nil
}

// seen is the kind of an error of reading what a holder has pinned, or nobody.
func seen(err error, h cache.Holder) string {
	if err != nil && h == "" && gone(err) {
		return "gone, unpinned"
	}
	return kind(err)
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
	w.add(w.compare(c, path, fill, h, func() { pause(ctx, w.about(time.Millisecond)) }))
}

// compare compares all bytes of a content. What is pinned has to be there, made
// by the same fill as before. It calls pause between two reads.
func (w *worker) compare(c content, path, fill string, h cache.Holder, pause func()) record {
	r := record{Did: didRead, Begin: monotonic(), Key: c.n, Holder: string(h), Path: path}
	var err error
	for range w.tries() {
		r.Fill, r.Bytes, err = c.check(path, pause)
		if err == nil || !transient(err) {
			break
		}
	}
	r.Err = seen(err, h)
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

func (w *worker) unpin(ctx context.Context, c content, fill string, h cache.Holder) {
	ctx = context.WithoutCancel(ctx)
	w.add(record{Did: didUnpin, Key: c.n, Fill: fill, Holder: string(h)})
	for {
		err := w.cache.Unpin(ctx, h)
		if err == nil {
			return
		}
		if wrong := w.unexpected(ctx, "unpin", err); wrong != "" {
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
	w.unpin(ctx, c, fill, h)
}
