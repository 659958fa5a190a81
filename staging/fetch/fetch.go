package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// Source gives out bundles' contents. *client.Client is one.
type Source interface {
	ContentsInfo(ctx context.Context, t codalab.Target, depth int) (codalab.TargetInfo, error)
	OpenContents(ctx context.Context, t codalab.Target, r *client.Range) (*client.Contents, error)
}

// Why a fetch failed, beside the server's own answers.
var (
	// ErrBroken means that the connection broke off, time and again.
	ErrBroken = errors.New("the connection to the server broke off")
	// ErrLink means that the target is a symbolic link, which servers do not
	// give out.
	ErrLink = errors.New("it is a symbolic link, which the server does not give out: name what it leads to")
	// ErrDiffers means that the server sent something else than it had said.
	ErrDiffers = errors.New("the server sent something else than it said")
)

// Fetch is how targets are brought.
type Fetch struct {
	From   Source
	Target codalab.Target
	// Limits bounds what the target may hold.
	Limits tarstream.Limits
	// Turn, where it is set, calls do when it is this fetch's turn to ask the
	// server for something, once for each stream. It may be called by several
	// goroutines at once.
	Turn func(ctx context.Context, do func() error) error
	// Reader, where it is set, is put before each stream.
	Reader func(ctx context.Context, r io.Reader) io.Reader
	// Progress, where it is set, is told how many bytes are there, and of how
	// many in all; 0 when that is not known. It may be called by several
	// goroutines at once, and returns quickly.
	Progress func(done, total int64)
}

// Streams of one fetch at a time, when files come one by one.
const streams = 4

// silence is how long a server may send nothing before a stream counts as
// broken off.
const silence = 2 * time.Minute

// To brings the target to tmp, whose directory is the fetch's own until To has
// ended. What lies there already is used if an earlier call for the same target
// left it, and removed else. A failure that may pass, and the end of ctx, leave
// what was fetched for the next call; any other, such as a full disk, leaves
// nothing.
func (f Fetch) To(ctx context.Context, tmp string) error {
	r := &run{Fetch: f, tmp: tmp}
	r.length.Store(mostRange)
	info, err := r.describe(ctx)
	if err != nil {
		return err
	}
	kept := false
	header := fmt.Sprintf("fetch 1 %q %s %d %s", f.Target.String(), info.Type, sizeOf(info), boot())
	if r.journal, kept, err = openJournal(filepath.Join(filepath.Dir(tmp), journalName), header); err != nil {
		return err
	}
	switch info.Type {
	case codalab.TargetFile:
		err = r.single(ctx, info, kept)
	case codalab.TargetDirectory:
		err = r.directory(ctx, kept)
	case codalab.TargetLink:
		err = ErrLink
	default:
		err = fmt.Errorf("%w: a target of the type %q", ErrDiffers, info.Type)
	}
	if err == nil {
		return r.journal.remove()
	}
	if mayPass(err) || ctx.Err() != nil {
		r.journal.leave()
		return err
	}
	return errors.Join(err, filetree.Remove(tmp), r.journal.remove())
}

// sizeOf is the size that identifies a target: a directory's says nothing.
func sizeOf(info codalab.TargetInfo) int64 {
	if info.Type == codalab.TargetFile {
		return info.Size
	}
	return 0
}

// boot names this start of this machine: what was written and not flushed
// before is there only until the next.
func boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Sprintf("process %d", os.Getpid())
	}
	return strings.TrimSpace(string(id))
}

// run is one call of To.
type run struct {
	Fetch

	tmp     string
	journal *journal

	done, total atomic.Int64
	// gained counts what was fetched for good, in bytes and entries: as long as
	// it grows, the fetch goes on.
	gained atomic.Int64
	// length is that of the next range.
	length atomic.Int64
	// plain is set once a range was answered with something else.
	plain atomic.Bool
}

// add tells of n more bytes.
func (r *run) add(n int64) {
	done := r.done.Add(n)
	if r.Progress != nil {
		r.Progress(done, r.total.Load())
	}
}

// clear makes tmp absent and forgets what was there.
func (r *run) clear() error {
	if err := filetree.Remove(r.tmp); err != nil {
		return fmt.Errorf("begin anew: %w", err)
	}
	r.done.Store(0)
	return r.journal.begin()
}

func (r *run) turn(ctx context.Context, do func() error) error {
	if r.Turn == nil {
		return do()
	}
	return r.Turn(ctx, do)
}

func (r *run) describe(ctx context.Context) (info codalab.TargetInfo, err error) {
	err = r.persist(ctx, func() error {
		return r.turn(ctx, func() error {
			info, err = r.From.ContentsInfo(ctx, r.Target, 0)
			return err
		})
	})
	return info, err
}

// persist calls try until it succeeds, fails for good, or has failed for about
// a minute without any gain. What came whole and is no archive is asked for
// once more.
func (r *run) persist(ctx context.Context, try func() error) error {
	const most, mostUnreadable = 7, 1
	for tries := 0; ; tries++ {
		before := r.gained.Load()
		err := try()
		if err == nil || !mayPass(err) || ctx.Err() != nil {
			return err
		}
		if r.gained.Load() > before {
			tries = 0
		}
		if tries == most || tries == mostUnreadable && errors.Is(err, tarstream.ErrFormat) {
			return err
		}
		if err := pause(ctx, backoff(tries)); err != nil {
			return err
		}
	}
}

// backoff is the pause after so many failures without a gain.
func backoff(tries int) time.Duration {
	if tries == 0 {
		return 0
	}
	return time.Second << (tries - 1)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait: %w", ctx.Err())
	case <-t.C:
		return nil
	}
}

// errShort means a file that ended early, though its connection did not break.
var errShort = errors.New("it ended early")

// mayPass says whether the same may succeed a moment later.
func mayPass(err error) bool {
	var answer *codalab.Error
	if errors.As(err, &answer) {
		return answer.Transient()
	}
	return errors.Is(err, ErrBroken) || errors.Is(err, errShort) || errors.Is(err, tarstream.ErrFormat)
}

// stream is contents that arrive, and why they ended.
type stream struct {
	*client.Contents

	paced  io.Reader
	quiet  *time.Timer
	cause  func() error
	broken error // what the connection failed with
	close  func()
}

var errQuiet = errors.New("it has sent nothing for two minutes")

// open asks for a target, or a part of it. The stream's errors wrap ErrBroken,
// or are ctx's.
func (r *run) open(ctx context.Context, t codalab.Target, part *client.Range) (*stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	contents, err := r.From.OpenContents(ctx, t, part)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	s := &stream{Contents: contents, quiet: time.AfterFunc(silence, func() { cancel(errQuiet) })}
	s.cause = func() error { return context.Cause(ctx) }
	s.close = func() {
		s.quiet.Stop()
		_ = contents.Close() // only read
		cancel(nil)
	}
	s.paced = readerFunc(s.read)
	if r.Reader != nil {
		s.paced = r.Reader(ctx, s.paced)
	}
	return s, nil
}

// Read reads at the pace that is given.
func (s *stream) Read(b []byte) (int, error) { return s.paced.Read(b) }

// read reads what has arrived. The time between reads is not the server's.
func (s *stream) read(b []byte) (int, error) {
	s.quiet.Reset(silence)
	n, err := s.Contents.Read(b)
	s.quiet.Stop()
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	switch cause := s.cause(); {
	case errors.Is(cause, errQuiet):
		err = fmt.Errorf("%w: %w", ErrBroken, errQuiet)
	case cause != nil:
		err = cause
	default:
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	s.broken = err
	return n, err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// fileMode is the mode of a file that the server describes: its owner may
// always read it, and nothing more than permissions is taken over.
func fileMode(info codalab.TargetInfo) fs.FileMode {
	return fs.FileMode(info.Perm)&0o777 | 0o400 //nolint:gosec // the server's permission bits, masked
}
