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
	// The length of a range is halved if a connection breaks, as nothing of the range
	// counts then, and doubled if the range arrives.
	minRange = 1 << 20
	maxRange = 32 << 20
	// flushEvery is after how many bytes a file is flushed, and noted in the journal.
	flushEvery = 16 << 20
)

// wanted is a file that is fetched by itself.
type wanted struct {
	target codalab.Target
	root   *os.Root
	name   string // below root, and in the journal
	info   codalab.TargetInfo
	part   int64 // how much of it is there
}

// single fetches a target that is a file.
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
	w := wanted{target: r.Target, root: root, name: name, info: info, part: max(there.parts[name], there.whole[name])}
	r.total.Store(info.Size)
	r.add(w.part)
	return errors.Join(r.file(ctx, w, r.retry), root.Close())
}

// once calls try; its caller calls it again.
func once(_ context.Context, try func() error) error { return try() }

// file fetches one file, of which a part may be there. Each try goes on where the one before
// it stopped.
func (r *session) file(ctx context.Context, w wanted, retry func(ctx context.Context, try func() error) error) error {
	counted := w.part
	f, err := openPart(&w)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	r.add(w.part - counted)
	t := &fileFetch{session: r, wanted: w, file: f, at: w.part, flushed: w.part}
	if err = retry(ctx, func() error { return t.fetchRest(ctx) }); err == nil {
		err = f.Chmod(fileMode(w.info))
	} else if t.at > 0 && f.Sync() == nil {
		r.journal.part(w.name, t.at)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	r.journal.whole(w.name, w.info.Size)
	return nil
}

// openPart opens a file of which a part is there, or makes a new one. It removes a file that
// it does not know, which may be another name of a file that is whole.
func openPart(w *wanted) (*os.File, error) {
	if w.part > 0 && w.part <= w.info.Size {
		f, err := w.root.OpenFile(w.name, os.O_RDWR, 0)
		if err == nil {
			info, err := f.Stat()
			if err == nil && info.Mode().IsRegular() && info.Size() >= w.part {
				return f, f.Truncate(w.part)
			}
			_ = f.Close() // of no use
		}
	}
	w.part = 0
	if err := w.root.Remove(w.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return w.root.OpenFile(w.name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// fileFetch is one file on its way.
type fileFetch struct {
	*session
	wanted

	file    *os.File
	at      int64 // so many bytes are there
	flushed int64 // so many are in the journal
}

// fetchRest fetches what is missing, or as much of it as arrives before a connection breaks.
func (t *fileFetch) fetchRest(ctx context.Context) error {
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

// fetchWhole asks for the whole file. What arrives before a break counts.
func (t *fileFetch) fetchWhole(ctx context.Context) error {
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

// restart discards what of the file is there.
func (t *fileFetch) restart() error {
	t.add(-t.at)
	if t.flushed > 0 {
		t.journal.part(t.name, 0)
	}
	t.at, t.flushed = 0, 0
	if err := t.file.Truncate(0); err != nil {
		return fmt.Errorf("begin anew: %w", err)
	}
	return nil
}

// fetchRange asks for the next range, which counts if all of it arrives.
func (t *fileFetch) fetchRange(ctx context.Context) error {
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
			t.noRanges.Store(true) // more came than was asked for: the file from its beginning
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

// openFile asks for the target, which must still be a file.
func (t *fileFetch) openFile(ctx context.Context, part *client.Range) (*stream, error) {
	s, err := t.open(ctx, t.target, part)
	if err != nil {
		return nil, err
	}
	if s.Type != codalab.TargetFile {
		s.close()
		return nil, fmt.Errorf("%w: a %s, not a file", ErrDiffers, s.Type)
	}
	return s, nil
}

// copy writes the next length bytes of s to the end of the file, and calls wrote for each
// piece.
func (t *fileFetch) copy(s *stream, length int64, wrote func(n int64) error) error {
	buf, start := make([]byte, 128<<10), t.at
	for done := int64(0); done < length; {
		n, err := s.Read(buf[:min(int64(len(buf)), length-done)])
		if n > 0 {
			if _, err := t.file.WriteAt(buf[:n], start+done); err != nil {
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
			return fmt.Errorf("%w: %w, %d of %d bytes came", ErrDiffers, errShort, done, length)
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
	}
	return nil
}

// expectEnd makes sure that nothing follows.
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

// flush flushes the file now and then, and notes that in the journal.
func (t *fileFetch) flush() error {
	if t.at-t.flushed < flushEvery {
		return nil
	}
	if err := t.file.Sync(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	t.flushed = t.at
	t.journal.part(t.name, t.at)
	return nil
}
