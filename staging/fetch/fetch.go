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
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// Source gives out bundles' contents. *client.Client is one.
type Source interface {
	ContentsInfo(ctx context.Context, t codalab.Target, depth int) (codalab.TargetInfo, error)
	OpenContents(ctx context.Context, t codalab.Target, r *client.Range) (*client.Contents, error)
}

// Why a fetch failed, beside the server's own answers.
var (
	// ErrBroken means that the connection broke off, each time.
	ErrBroken = errors.New("the connection to the server broke off")
	// ErrLink means that the target is a symbolic link, which servers do not give out.
	ErrLink = errors.New("it is a symbolic link, which the server does not give out: name what it leads to")
	// ErrDiffers means that the server sent something else than it had said.
	ErrDiffers = errors.New("the server sent something else than it said")
)

// Fetch says what is fetched, and how.
type Fetch struct {
	From   Source
	Target codalab.Target
	// Limits bounds what the target may hold.
	Limits tarstream.Limits
	// Turn, if it is set, calls do when it is this fetch's turn to ask the server for
	// something, once for each stream. Several goroutines may call it at once.
	Turn func(ctx context.Context, do func() error) error
	// Reader, if it is set, wraps each stream.
	Reader func(ctx context.Context, r io.Reader) io.Reader
	// Progress, if it is set, is told how many bytes are there, and of how many in all; 0
	// if that is unknown. Several goroutines may call it at once. It returns quickly.
	Progress func(done, total int64)
}

// streams is how many streams one fetch has at a time, if files come one by one.
const streams = 4

// To fetches the target to tmp, whose directory belongs to the fetch until To has ended. To
// uses what lies there already if an earlier call for the same target left it, and else
// removes it. After a transient failure, or the end of ctx, what was fetched stays for the
// next call; after any other, such as a full disk, nothing stays.
func (f Fetch) To(ctx context.Context, tmp string) error {
	r := &session{Fetch: f, tmp: tmp}
	r.length.Store(maxRange)
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
	if isTransient(err) || ctx.Err() != nil {
		r.journal.close()
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

// boot names this start of the machine: what is written and not flushed may be lost at the
// next.
func boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Sprintf("process %d", os.Getpid())
	}
	return strings.TrimSpace(string(id))
}

// session is one call of To.
type session struct {
	Fetch

	tmp     string
	journal *journal

	done, total atomic.Int64
	// gained counts what was fetched for good, in bytes and entries. As long as it grows,
	// the fetch goes on.
	gained atomic.Int64
	// length is that of the next range.
	length atomic.Int64
	// noRanges is set once the server answered a range with something else.
	noRanges atomic.Bool
}

func (r *session) add(n int64) {
	done := r.done.Add(n)
	if r.Progress != nil {
		r.Progress(done, r.total.Load())
	}
}

// reset removes tmp and begins a new journal.
func (r *session) reset() error {
	if err := filetree.Remove(r.tmp); err != nil {
		return fmt.Errorf("begin anew: %w", err)
	}
	r.done.Store(0)
	return r.journal.reset()
}

func (r *session) turn(ctx context.Context, do func() error) error {
	if r.Turn == nil {
		return do()
	}
	return r.Turn(ctx, do)
}

func (r *session) describe(ctx context.Context) (info codalab.TargetInfo, err error) {
	err = r.retry(ctx, func() error {
		return r.turn(ctx, func() error {
			info, err = r.From.ContentsInfo(ctx, r.Target, 0)
			return err
		})
	})
	return info, err
}

// retry calls try until it succeeds, fails for good, or has failed for about a minute
// without any gain. An archive that arrived whole and cannot be read is asked for once more.
func (r *session) retry(ctx context.Context, try func() error) error {
	const most, mostUnreadable = 7, 1
	for tries := 0; ; tries++ {
		before := r.gained.Load()
		err := try()
		if err == nil || !isTransient(err) || ctx.Err() != nil {
			return err
		}
		if r.gained.Load() > before {
			tries = 0
		}
		if tries == most || tries == mostUnreadable && errors.Is(err, tarstream.ErrFormat) {
			return err
		}
		if tries > 0 {
			if err := pause.For(ctx, time.Second<<(tries-1)); err != nil {
				return fmt.Errorf("wait: %w", err)
			}
		}
	}
}

// errShort means a file that ended early, though its connection did not break.
var errShort = errors.New("it ended early")

// isTransient reports whether the same may succeed a moment later.
func isTransient(err error) bool {
	var answer *codalab.Error
	if errors.As(err, &answer) {
		return answer.Transient()
	}
	return errors.Is(err, ErrBroken) || errors.Is(err, errShort) || errors.Is(err, tarstream.ErrFormat)
}

// fileMode is the mode of a file as the server describes it: the permissions alone, and its
// owner may always read it.
func fileMode(info codalab.TargetInfo) fs.FileMode {
	return fs.FileMode(info.Perm)&0o777 | 0o400 //nolint:gosec // the server's permission bits, masked
}
