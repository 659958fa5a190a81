package cachetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// use gets a content, reads it for a while, and unpins it.
func (w *worker) use(ctx context.Context, c content, h cache.Holder) {
	if w.rng.IntN(20) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.about(20*time.Millisecond))
		defer cancel()
	}
	path, fill, ok := w.get(ctx, c, h)
	if ok {
		w.add(w.compare(c, path, fill, h))
	}
	if h == "" {
		return
	}
	if ok {
		w.sabotage(ctx, c, path)
		_ = pause.For(ctx, w.about(100*time.Millisecond))
		w.add(w.compare(c, path, fill, h))
	}
	w.unpin(ctx, c, h)
}

// get returns a content's path, and the fill that made it.
func (w *worker) get(ctx context.Context, c content, h cache.Holder) (path, fill string, ok bool) {
	r := record{Did: didGet, Begin: w.now(), Key: c.n, Holder: string(h)}
	var own atomic.Pointer[string]
	want := cache.Want{Key: c.key(), Holder: h, Owner: fmt.Sprint("o", c.n%4), Size: c.size, Resume: w.rng.IntN(2) == 0}
	p := w.plan(c)
	path, err := w.cache.Get(ctx, want, func(ctx context.Context, tmp string) error {
		fill := w.nextFill()
		own.Store(&fill)
		return w.fill(ctx, c, p, fill, tmp, want.Resume)
	})
	if r.Path, r.Err = path, kind(err); err != nil {
		r.Wrong = w.unexpected(ctx, "get", err)
		w.add(r)
		return "", "", false
	}
	err = w.patiently(func() (err error) {
		fill, err = c.madeBy(path)
		return err
	})
	mine := own.Load()
	r.Fill, r.Err, r.Own = fill, kind(err), mine != nil && fill == *mine
	if err != nil && (h != "" || !gone(err)) {
		r.Wrong = fmt.Sprintf("key %d, holder %q: cannot be read when Get has returned: %v", c.n, h, err)
	}
	w.add(r)
	return path, fill, err == nil
}

// patiently repeats a reading that a faulty file system fails.
func (w *worker) patiently(read func() error) (err error) {
	for range 40 {
		if err = read(); err == nil || !w.Faulty || !transient(err) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

// unexpected describes an error that the cache should not return. It is empty for others.
func (w *worker) unexpected(ctx context.Context, what string, err error) string {
	switch kind(err) {
	case "", "full", "lost", "broken fill":
		return ""
	case "ended":
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

// plan decides the course of a fill.
type plan struct {
	steps  time.Duration // duration of each step
	last   int           // the step at which it fails or the fate comes
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

// fill makes a content, or fails as planned.
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
			_ = pause.For(ctx, p.steps)
		}
		step++
		switch {
		case step <= p.last:
		case doomed:
			doomed = false
			w.signal() // a stopped process continues here
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

// compare compares all bytes of a content. A pinned content must exist, and must be of the same
// fill as before.
func (w *worker) compare(c content, path, fill string, h cache.Holder) record {
	r := record{Did: didRead, Begin: w.now(), Key: c.n, Holder: string(h), Path: path}
	err := w.patiently(func() (err error) {
		r.Fill, r.Bytes, err = c.check(path)
		return err
	})
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

func (w *worker) unpin(ctx context.Context, c content, h cache.Holder) {
	ctx = context.WithoutCancel(ctx)
	w.add(record{Did: didUnpin, Key: c.n, Holder: string(h)})
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
