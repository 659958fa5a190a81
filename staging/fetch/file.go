package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

const (
	// The length of a range is halved if a connection breaks, because then no byte of the range
	// counts, and doubled if the range arrives.
	minRange = 1 << 20
	maxRange = 32 << 20
	// After flushEvery bytes a file is flushed and recorded in the journal.
	flushEvery = 16 << 20
)

// file is a file that is fetched by itself.
type file struct {
	*session

	target codalab.Target
	root   *os.Root
	name   string // relative to root, and in the journal
	info   codalab.TargetInfo

	at      int64    // bytes on the disk
	flushed int64    // bytes in the journal
	f       *os.File // during the fetch
}

func (r *session) single(ctx context.Context, info codalab.TargetInfo, kept bool) error {
	if r.Limits.Bytes > 0 && info.Size > r.Limits.Bytes {
		return &tarstream.LimitError{Limits: tarstream.Limits{Bytes: r.Limits.Bytes}}
	}
	if !kept {
		if err := r.reset(); err != nil {
			return err
		}
	}
	there, err := r.journal.read()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(r.tmp))
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	name := filepath.Base(r.tmp)
	t := file{session: r, target: r.Target, root: root, name: name, info: info, at: max(there.parts[name], there.whole[name])}
	r.total.Store(info.Size)
	r.add(t.at)
	return errors.Join(t.fetch(ctx, r.retry), root.Close())
}

// fetch fetches the file. t.at bytes may be on the disk. Each try continues from the end of the one
// before it.
func (t *file) fetch(ctx context.Context, retry func(ctx context.Context, try func() error) error) error {
	counted := t.at
	if err := t.open(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	t.add(t.at - counted)
	t.flushed = t.at
	err := retry(ctx, func() error { return t.fetchRest(ctx) })
	if err == nil {
		err = t.f.Chmod(fileMode(t.info))
	} else if t.at > 0 && t.f.Sync() == nil {
		t.journal.part(t.name, t.at)
	}
	if err := errors.Join(err, t.f.Close()); err != nil {
		return err
	}
	t.journal.whole(t.name, t.info.Size)
	return nil
}

// open opens the file if t.at bytes of it are on the disk, or makes a new one. It removes an
// unknown file, which may be another name of a complete file.
func (t *file) open() (err error) {
	if t.at > 0 && t.at <= t.info.Size {
		if t.f, err = t.root.OpenFile(t.name, os.O_RDWR, 0); err == nil {
			info, err := t.f.Stat()
			if err == nil && info.Mode().IsRegular() && info.Size() >= t.at && t.f.Truncate(t.at) == nil {
				return nil
			}
			_ = t.f.Close() // unusable
		}
	}
	t.at = 0
	if err := t.root.Remove(t.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	t.f, err = t.root.OpenFile(t.name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return err
}

// fetchRest fetches the missing bytes until the end of the file or until a connection breaks.
func (t *file) fetchRest(ctx context.Context) error {
	if t.at == 0 || t.noRanges.Load() {
		return t.turn(ctx, func() error { return t.fetchWhole(ctx) })
	}
	for t.at < t.info.Size {
		if err := t.turn(ctx, func() error { return t.fetchRange(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// fetchWhole asks for the whole file. The bytes before a break count.
func (t *file) fetchWhole(ctx context.Context) error {
	if err := t.restart(); err != nil {
		return err
	}
	s, err := t.openFile(ctx, nil)
	if err != nil {
		return err
	}
	defer s.close()
	err = t.copy(s, t.info.Size, func(n int64) error {
		t.at += n
		if !t.noRanges.Load() {
			t.gained.Add(n)
		}
		return t.flush()
	})
	if err != nil {
		return err
	}
	return expectEnd(s, t.info.Size)
}

func (t *file) restart() error {
	t.add(-t.at)
	if t.flushed > 0 {
		t.journal.part(t.name, 0)
	}
	t.at, t.flushed = 0, 0
	if err := t.f.Truncate(0); err != nil {
		return fmt.Errorf("begin anew: %w", err)
	}
	return nil
}

// fetchRange asks for the next range, which counts only if it arrives completely.
func (t *file) fetchRange(ctx context.Context) error {
	length := min(t.length.Load(), t.info.Size-t.at)
	s, err := t.openFile(ctx, &client.Range{Offset: t.at, Length: length})
	if err != nil {
		return err
	}
	defer s.close()
	came := int64(0)
	err = t.copy(s, length, func(n int64) error {
		came += n
		return nil
	})
	if err == nil {
		err = expectEnd(s, length)
	}
	if err != nil {
		t.add(-came)
		t.length.Store(max(length/2, minRange))
		if errors.Is(err, ErrDiffers) && came == length {
			t.noRanges.Store(true) // too many bytes: the server sent the file from its beginning
			err = fmt.Errorf("%w: %w", ErrBroken, err)
		}
		return err
	}
	t.at += length
	t.gained.Add(length)
	if length == t.length.Load() {
		t.length.Store(min(length*2, maxRange))
	}
	return t.flush()
}

func (t *file) openFile(ctx context.Context, part *client.Range) (*stream, error) {
	s, err := t.openStream(ctx, t.target, part)
	if err != nil {
		return nil, err
	}
	if s.Type != codalab.TargetFile {
		s.close()
		return nil, fmt.Errorf("%w: a %s, not a file", ErrDiffers, s.Type)
	}
	return s, nil
}

// copy writes the next length bytes of s to the end of the file, and calls wrote for each piece.
func (t *file) copy(s *stream, length int64, wrote func(n int64) error) error {
	buf, start := make([]byte, 128<<10), t.at
	for done := int64(0); done < length; {
		n, err := s.Read(buf[:min(int64(len(buf)), length-done)])
		if n > 0 {
			if _, err := t.f.WriteAt(buf[:n], start+done); err != nil {
				return fmt.Errorf("write: %w", err)
			}
			done += int64(n)
			t.add(int64(n))
			if err := wrote(int64(n)); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) && done < length:
			return fmt.Errorf("%w: %w, %d of %d bytes arrived", ErrDiffers, errShort, done, length)
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
	}
	return nil
}

// expectEnd returns an error if more bytes follow.
func expectEnd(s *stream, after int64) error {
	switch n, err := io.ReadFull(s, make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("%w: more than %d bytes", ErrDiffers, after)
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}

// flush flushes the file after flushEvery bytes, and records that in the journal.
func (t *file) flush() error {
	if t.at-t.flushed < flushEvery {
		return nil
	}
	if err := t.f.Sync(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	t.flushed = t.at
	t.journal.part(t.name, t.at)
	return nil
}
