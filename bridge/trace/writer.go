package trace

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"sync"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// DefaultLimit is the default of Writer.Limit, in bytes.
const DefaultLimit = 1 << 30

// maxPending bounds the decisions that wait to be written.
const maxPending = 1 << 14

// Writer appends decisions to a file. It never delays the bridge: it leaves out and counts decisions that
// it cannot write in time, and writes nothing more after an error.
type Writer struct {
	// Limit bounds the size of FILE and FILE.1 together, in bytes. It is set before Run.
	Limit int64

	path   string
	header Header
	log    *slog.Logger
	file   *os.File
	out    *bufio.Writer
	size   int64

	mu      sync.Mutex
	pending []pending
	policy  *plan.Policy // of the decisions that follow; nil for no change
	lost    int
	broken  bool
	arrived chan struct{}
}

// pending is a decision to be written, with the number of decisions that were left out before it, and the
// policy from it on, nil if that has not changed.
type pending struct {
	lost   int
	policy *plan.Policy
	plan.Decision
}

// Open opens a trace at path, readable by its owner only, and appends to it. The caller calls Run, which
// closes it.
func Open(path string, h Header, log *slog.Logger) (*Writer, error) {
	h.Format = Format
	w := &Writer{Limit: DefaultLimit, path: path, header: h, log: log, arrived: make(chan struct{}, 1)}
	if err := w.open(); err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	return w, nil
}

// open opens the file and writes the header.
func (w *Writer) open() error {
	f, err := os.OpenFile(w.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	size, whole, err := fileEnd(f)
	if err := errors.Join(err, f.Chmod(0o600)); err != nil {
		return errors.Join(err, f.Close())
	}
	w.file, w.out, w.size = f, bufio.NewWriterSize(f, 1<<16), size
	if !whole {
		if err := w.put([]byte("\n")); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := errors.Join(w.write(record{Header: &w.header}), w.out.Flush()); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// fileEnd returns a file's length, and whether its last line is whole.
func fileEnd(f *os.File) (size int64, whole bool, err error) {
	if size, err = f.Seek(0, io.SeekEnd); err != nil || size == 0 {
		return size, true, err
	}
	last := make([]byte, 1)
	_, err = f.ReadAt(last, size-1)
	return size, last[0] == '\n', err
}

// Record adds a decision, unless it only applies the usage of a running attempt. It does not block. It is
// for Bridge.Trace, and not safe for concurrent use.
func (w *Writer) Record(d plan.Decision) {
	if routine(d) {
		return
	}
	w.mu.Lock()
	switch {
	case w.broken:
	case len(w.pending) >= maxPending:
		w.lost++
	default:
		w.pending = append(w.pending, pending{w.lost, w.policy, d})
		w.lost, w.policy = 0, nil
	}
	w.mu.Unlock()
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}

// SetPolicy changes the policy of the decisions that are recorded after it. It is for Bridge.TracePolicy.
func (w *Writer) SetPolicy(p plan.Policy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.policy = &p
}

// routine reports whether a decision only applies the usage of a running attempt.
func routine(d plan.Decision) bool {
	rec := d.News.Records
	if rec == nil || rec.Exit != nil || len(d.Effects) > 0 || !d.Row.Same(d.Next) {
		return false
	}
	d.News.Records = nil
	return reflect.ValueOf(d.News).IsZero()
}

// Run writes the decisions of Record until ctx ends, then the rest, and closes the file. It logs an error
// that ends the trace earlier, and then still blocks until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	defer func() {
		w.flush(ctx)
		if w.file == nil {
			return
		}
		if err := w.file.Close(); err != nil { // a network disk may report a failed write only now
			w.breakOff(ctx, err)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.arrived:
			w.flush(ctx)
		}
	}
}

// flush writes the pending decisions.
func (w *Writer) flush(ctx context.Context) {
	w.mu.Lock()
	waiting := w.pending
	w.pending = nil
	w.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	if err := w.writeAll(waiting); err != nil {
		w.breakOff(ctx, err)
	}
}

// breakOff ends the trace with an error, and logs the first one.
func (w *Writer) breakOff(ctx context.Context, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.broken {
		w.log.ErrorContext(ctx, "the trace ends here: it cannot be written", slog.String("file", w.path), slog.String("error", err.Error()))
	}
	w.broken, w.pending = true, nil
}

func (w *Writer) writeAll(waiting []pending) error {
	for _, p := range waiting {
		if p.lost > 0 {
			if err := w.write(record{Lost: p.lost}); err != nil {
				return err
			}
		}
		if p.policy != nil {
			w.header.Policy = *p.policy
			if err := w.write(record{Header: &w.header}); err != nil {
				return err
			}
		}
		if err := w.write(record{Decision: &p.Decision}); err != nil {
			return err
		}
	}
	return w.out.Flush()
}

func (w *Writer) write(r record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if r.Header == nil && w.size+int64(len(line)) >= w.Limit/2 {
		if err := w.rotate(); err != nil {
			return err
		}
	}
	return w.put(append(line, '\n'))
}

func (w *Writer) put(data []byte) error {
	n, err := w.out.Write(data)
	w.size += int64(n)
	return err
}

// rotate begins a new file.
func (w *Writer) rotate() error {
	err := errors.Join(w.out.Flush(), w.file.Close())
	w.file = nil
	if err != nil {
		return err
	}
	if err := os.Rename(w.path, w.path+".1"); err != nil {
		return err
	}
	w.log.Info("a new trace file begins: the old one has half of the permitted size", slog.String("file", w.path), slog.String("older", w.path+".1"))
	return w.open()
}
