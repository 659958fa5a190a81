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
	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// Source gives out bundles' contents. *client.Client is one.
type Source interface {
	ContentsInfo(ctx context.Context, t codalab.Target, depth int) (codalab.TargetInfo, error)
	OpenContents(ctx context.Context, t codalab.Target, r *client.Range) (*client.Contents, error)
}

// Errors of a fetch, apart from the server's own answers.
var (
	// ErrBroken means that the connection broke off in each try.
	ErrBroken = errors.New("the connection to the server broke off")
	// ErrLink means that the target is a symbolic link, which servers do not give out.
	ErrLink = errors.New("it is a symbolic link, which the server does not send: name its target instead")
	// ErrDiffers means that the server's data contradicts its description.
	ErrDiffers = errors.New("the server's data differs from its description")
)

// Fetch describes one fetch.
type Fetch struct {
	From   Source
	Target codalab.Target
	// Limits bounds the target's size.
	Limits tarstream.Limits
	// Turn, if it is set, calls do when this fetch may ask the server, once for each stream.
	// Several goroutines may call Turn at the same time.
	Turn func(ctx context.Context, do func() error) error
	// Reader, if it is set, wraps each stream.
	Reader func(ctx context.Context, r io.Reader) io.Reader
	// Progress, if it is set, gets the number of fetched bytes and the total, or 0 if that is
	// unknown. Several goroutines may call it at the same time. It must return quickly.
	Progress func(done, total int64)
}

// streams limits the simultaneous streams of one fetch.
const streams = 4

// To fetches the target to tmp. The directory of tmp belongs to the fetch until To returns. To uses
// the files that an earlier call for the same target left there, and removes others. After a
// transient failure, or the end of ctx, the fetched files stay for the next call. After any other
// failure, such as a full disk, To removes them.
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

// sizeOf returns the size that identifies a target. A directory's size is meaningless.
func sizeOf(info codalab.TargetInfo) int64 {
	if info.Type == codalab.TargetFile {
		return info.Size
	}
	return 0
}

// boot names the machine's current boot. A reboot may lose data that was written but not flushed.
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
	// gained counts bytes and entries that need not be fetched again. The fetch goes on as long as
	// it grows.
	gained atomic.Int64
	// length is the length of the next range.
	length atomic.Int64
	// noRanges is set when the server has answered a range with something else.
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

// retry calls try until it succeeds, fails permanently, or has failed for about a minute without
// any gain. It asks only once more for an archive that arrived completely and is unreadable.
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
			if err := backoff.Wait(ctx, tries, time.Second, time.Minute); err != nil {
				return fmt.Errorf("wait: %w", err)
			}
		}
	}
}

// errShort means a file that ended early although its connection did not break.
var errShort = errors.New("it ended early")

// isTransient reports whether the same call may succeed soon.
func isTransient(err error) bool {
	if serverErr, ok := errors.AsType[*codalab.Error](err); ok {
		return serverErr.Transient()
	}
	return errors.Is(err, ErrBroken) || errors.Is(err, errShort) || errors.Is(err, tarstream.ErrFormat)
}

// fileMode returns the mode of a file in the server's description: only the permissions, and with
// the owner's right to read.
func fileMode(info codalab.TargetInfo) fs.FileMode {
	return fs.FileMode(info.Perm)&0o777 | 0o400 //nolint:gosec // the server's permission bits, masked
}
