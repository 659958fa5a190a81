package linkonce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// Settle tries to make record the content of path, with these permissions, and returns
// the standing record as decode reads it. The directory must exist.
//
// A record must identify its owner, for example by 128 random bits. decode fails for an
// incomplete record. Settle may call it several times.
//
// Settle tries until it knows the standing record or ctx ends; it tries once if ctx has
// ended already. An error means that it does not know, and that record may stand
// nevertheless, now or later. Settling the same record again is harmless and may succeed.
// Settle waits beyond the end of ctx for a disk that does not answer at all.
func Settle[T any](ctx context.Context, path string, record []byte, perm fs.FileMode, decode func([]byte) (T, error)) (T, error) {
	standing, err := settle(ctx, onDisk(path, perm), record, decode)
	if err != nil {
		var none T
		return none, fmt.Errorf("settle %s: %w", path, err)
	}
	return standing, nil
}

// disk has the operations of Settle on the file server and the clock.
type disk struct {
	// write makes a temporary file with the record in path's directory.
	write func(record []byte) (temporary string, err error)
	// link links the temporary file to the path, if there is no file.
	link func(temporary string) error
	// read reads the file at the path.
	read func() ([]byte, error)
	// flush makes the directory's entries last.
	flush  func() error
	remove func(temporary string) error
	// pause waits before another try; its error means that ctx has ended.
	pause func(ctx context.Context) error
}

func onDisk(path string, perm fs.FileMode) disk {
	return disk{
		write:  func(record []byte) (string, error) { return atomicfile.Temporary(path, record, perm) },
		link:   func(temporary string) error { return os.Link(temporary, path) },
		read:   func() ([]byte, error) { return smallfile.Read(path) },
		flush:  func() error { return atomicfile.SyncDir(filepath.Dir(path)) },
		remove: os.Remove,
		pause:  func(ctx context.Context) error { return pause.For(ctx, 200*time.Millisecond) },
	}
}

func settle[T any](ctx context.Context, d disk, record []byte, decode func([]byte) (T, error)) (T, error) {
	var temporary string
	defer func() {
		if temporary != "" {
			_ = d.remove(temporary) // a leftover has no meaning
		}
	}()
	for {
		var writeErr, linkErr error
		if temporary == "" {
			temporary, writeErr = d.write(record)
		}
		if temporary != "" {
			linkErr = d.link(temporary)
		}
		standing, err := confirm(d, decode)
		if err == nil {
			return standing, nil
		}
		if errors.Is(linkErr, fs.ErrNotExist) || errors.Is(linkErr, syscall.ESTALE) { // another process removed it
			_ = d.remove(temporary) // or so it seems
			temporary = ""
		}
		if ended := d.pause(ctx); ended != nil {
			return standing, errors.Join(ended, writeErr, linkErr, err)
		}
	}
}

// confirm reads the standing record, and makes it durable.
func confirm[T any](d disk, decode func([]byte) (T, error)) (T, error) {
	var none T
	first, err := d.read()
	if err != nil {
		return none, err
	}
	standing, err := decode(first)
	if err != nil {
		return none, err
	}
	if err := d.flush(); err != nil {
		return none, err
	}
	second, err := d.read()
	if err != nil {
		return none, err
	}
	if !bytes.Equal(first, second) {
		return none, errors.New("its content changed while it was flushed")
	}
	return standing, nil
}
