package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

const (
	// sectionSize is the length of one request when cl continues a file: CodaLab's own server holds the
	// whole section in memory.
	sectionSize = 32 << 20
	// overlap is the length at the end of a part that cl compares with the server's file before it
	// continues.
	overlap = 64 << 10
	// patience limits the retries without any new bytes.
	patience = time.Minute
)

// persist calls transfer until it succeeds, fails permanently, or makes no progress for patience. news
// reports whether the last call has received bytes that the next one need not receive again.
func (d *download) persist(ctx context.Context, p *progress, transfer func() error, news func() bool) error {
	failed, last := 1, d.Now()
	for ; ; failed++ {
		err := transfer()
		if err == nil || !passing(err) || ctx.Err() != nil {
			return err
		}
		if news() {
			failed, last = 1, d.Now()
		}
		if d.Now().Sub(last) > patience {
			return err
		}
		p.clear()
		d.warn("%v: trying again.", explain(err))
		if err := backoff.Wait(ctx, failed, 250*time.Millisecond, 10*time.Second); err != nil {
			return err
		}
	}
}

// passing reports whether the same call may soon succeed: the connection broke, or the server or a proxy
// answered that it is busy or starting. An internal error of the server does not pass.
func passing(err error) bool {
	var call *codalab.Error
	return errors.As(err, &call) && call.Transient() && !slices.Contains([]int{500, 501, 507}, call.Status)
}

// received marks errors of the answer's stream, so that they differ from errors of the disk.
type received struct {
	r      io.Reader
	target codalab.Target
}

// Read reads on.
func (r received) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &codalab.Error{Method: "GET", Path: r.target.String(), Err: err, Message: fmt.Sprintf("the connection broke: %v", err)}
	}
	return n, err
}

// directory downloads a directory and returns the size of its files. An archive always restarts at its
// beginning.
func (d *download) directory(ctx context.Context) (size int64, err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(d.final), partName(d.final)+"*")
	if err != nil {
		return 0, unwritable(filepath.Dir(d.final), err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	p := d.progress("Received", -1)
	defer p.end()
	whole := filepath.Join(tmp, "new")
	err = d.persist(ctx, p, func() error {
		p.restart(0)
		if err := os.RemoveAll(whole); err != nil {
			return err
		}
		size, err = d.receiveTree(ctx, p, whole)
		return err
	}, func() bool { return false })
	if err != nil {
		return 0, d.failed(ctx, err)
	}
	return size, d.moveToDestination(whole, filepath.Join(tmp, "old"))
}

// receiveTree unpacks without limits, because the user chose the destination.
func (d *download) receiveTree(ctx context.Context, p *progress, dir string) (int64, error) {
	contents, err := d.open(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer contents.Close()
	if err := os.Mkdir(dir, 0o777); err != nil { //nolint:gosec // as the user's umask says
		return 0, fmt.Errorf("create: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, fmt.Errorf("create: %w", err)
	}
	size, err := tarstream.UnpackWatched(ctx, io.TeeReader(received{contents, d.target}, p), root, tarstream.Limits{}, tarstream.Watch{
		Special: func(name string) { d.warn("%s is left out: it is a pipe or a device.", name) },
	})
	return size.Bytes, errors.Join(err, root.Close())
}

// failed returns the error for the user.
func (d *download) failed(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return refusef("There is no more room in %s: free some, or choose another path with -o.", filepath.Dir(d.final))
	}
	return fmt.Errorf("download to %s: %w", d.final, err)
}

// open opens the target, or a section of it.
func (d *download) open(ctx context.Context, r *client.Range) (*client.Contents, error) {
	contents, err := d.at.OpenContents(ctx, d.target, r)
	if err == nil && contents.Type != d.info.Type {
		_ = contents.Close() // it has the wrong type
		return nil, refusef("%s has become a %s.", d.target, contents.Type)
	}
	return contents, err
}

// file downloads a file, and returns its size.
func (d *download) file(ctx context.Context) (size int64, err error) {
	part, err := d.openPart()
	if err != nil {
		return 0, err
	}
	p := d.progress("Received", d.info.Size)
	defer func() {
		p.end()
		err = errors.Join(err, d.leavePart(part, err))
	}()
	if err := d.checkDisk(d.info.Size - part.size); err != nil {
		return 0, err
	}
	before := part.size
	err = d.persist(ctx, p, func() error {
		before = part.size
		p.restart(part.size)
		if part.size > 0 {
			return d.receiveRest(ctx, p, part)
		}
		return d.receiveFile(ctx, p, part)
	}, func() bool { return d.steady && part.size > before })
	if err != nil {
		return 0, d.failed(ctx, err)
	}
	if err := part.file.Close(); err != nil {
		return 0, d.failed(ctx, err)
	}
	return part.size, d.moveToDestination(part.path, part.path+"-old")
}

// receiveFile receives a file from its beginning.
func (d *download) receiveFile(ctx context.Context, p *progress, part *partialFile) error {
	contents, err := d.open(ctx, nil)
	if err != nil {
		return err
	}
	defer contents.Close()
	if d.steady && contents.Size >= 0 && contents.Size != d.info.Size {
		return d.changed()
	}
	err = part.add(io.TeeReader(received{contents, d.target}, p))
	if err == nil {
		err = d.checkSize(part)
	}
	if err != nil && !d.steady {
		return errors.Join(err, part.restart())
	}
	return err
}

// receiveRest continues a file from an existing part.
func (d *download) receiveRest(ctx context.Context, p *progress, part *partialFile) error {
	same, err := d.compare(ctx, part)
	if err != nil {
		return err
	}
	if !same {
		p.restart(0)
		return errors.Join(part.restart(), d.receiveFile(ctx, p, part))
	}
	for part.size < d.info.Size {
		r := client.Range{Offset: part.size, Length: min(sectionSize, d.info.Size-part.size)}
		contents, err := d.open(ctx, &r)
		if err != nil {
			return err
		}
		err = part.add(io.TeeReader(io.LimitReader(received{contents, d.target}, r.Length), p))
		_ = contents.Close() // everything needed has been read
		if err != nil {
			return err
		}
		if part.size < r.Offset+r.Length {
			return d.checkSize(part)
		}
	}
	return d.checkSize(part)
}

// compare reports whether the end of the part equals the server's file: a crash of this machine may have
// damaged it.
func (d *download) compare(ctx context.Context, part *partialFile) (bool, error) {
	if part.size > d.info.Size {
		return false, nil
	}
	from := max(0, part.size-overlap)
	contents, err := d.open(ctx, &client.Range{Offset: from, Length: part.size - from})
	if err != nil {
		return false, err
	}
	defer contents.Close()
	// One byte more would come from a proxy that ignores ranges.
	theirs, err := io.ReadAll(io.LimitReader(received{contents, d.target}, part.size-from+1))
	if err != nil {
		return false, err
	}
	return part.endsWith(from, theirs)
}

// checkSize checks that a file is complete. A file of a bundle that still runs may have grown since.
func (d *download) checkSize(part *partialFile) error {
	switch {
	case part.size < d.info.Size:
		return &codalab.Error{
			Method: "GET", Path: d.target.String(), Message: fmt.Sprintf("the contents ended after %d of %d bytes", part.size, d.info.Size),
		}
	case part.size > d.info.Size && d.steady:
		return errors.Join(d.changed(), part.restart())
	}
	return nil
}

// changed is the error for a file that is not as the server has described it.
func (d *download) changed() error {
	return refusef("%s has not the %d bytes that the server has stated.", d.target, d.info.Size)
}
