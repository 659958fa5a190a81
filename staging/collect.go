package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Collector delivers results: to the server as one stream, without a copy on
// any disk, or to where the shared disk keeps them. It is safe for concurrent
// use.
type Collector struct {
	Contents Contents
	// Store is the server's own store, where this bridge shares its disk; nil
	// otherwise.
	Store *ServerStore
	// Layout is the shared directory, in which the run directories lie.
	Layout spool.Layout
	// Now reads the clock, by which the rate of an upload is measured.
	Now func() time.Time
}

// Collect delivers what a run left in its run directory dir, without the links
// to its dependencies and without what its exclude_patterns name: as it is told,
// or by moving it into the server's store where the server shares that. It
// returns in a few words what it has delivered. progress is called now and then
// with one sentence, from one goroutine at a time.
func (c *Collector) Collect(ctx context.Context, run codalab.RunBundle, dir string, how spool.Results, progress func(string)) (string, error) {
	delivered, err := c.collect(ctx, run, dir, how, progress)
	var known *Error
	final := errors.Is(err, fs.ErrPermission) || errors.Is(err, tarstream.ErrTooLarge)
	if final && !errors.As(err, &known) {
		return "", &Error{What: "results", Err: err}
	}
	return delivered, err
}

func (c *Collector) collect(ctx context.Context, run codalab.RunBundle, dir string, how spool.Results, progress func(string)) (string, error) {
	if c.Store != nil && run.Location != nil {
		if err := c.Store.Move(ctx, run, dir); err != nil {
			return "", err
		}
		// A crash in between has both asked for again.
		return "moved to " + *run.Location, c.supersede(run.UUID, nil)
	}
	if how == spool.ResultsKeep {
		return c.keep(ctx, run, dir, progress)
	}
	root, err := openClosed(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// The queue may have kept its results when they were asked for first.
		return c.keep(ctx, run, dir, progress)
	}
	if err != nil {
		return "", &Error{What: "results", Err: err, Retry: true}
	}
	defer func() { _ = root.Close() }() // only read
	said, err := opened(root, func() (string, error) { return c.upload(ctx, run, root, progress) })
	if err != nil {
		return "", err
	}
	from, err := root.Stat(".")
	if err != nil {
		return "", &Error{What: "results", Err: err, Retry: true}
	}
	return said, c.supersede(run.UUID, from)
}

// Open opens what a run left in its run directory dir, for reading: there, or
// where Collect has taken it since.
func (c *Collector) Open(run codalab.RunBundle, dir string) (*os.Root, error) {
	mark, unmarked := readMark(dir)
	var root *os.Root
	var err error
	if mark.Moved { // what is left in dir is only the rest
		root, err = openMoved(mark)
	} else if root, err = os.OpenRoot(dir); errors.Is(err, fs.ErrNotExist) && unmarked == nil {
		root, err = openMoved(mark)
	}
	if errors.Is(err, fs.ErrNotExist) {
		root, err = os.OpenRoot(c.Layout.KeptDir(run.UUID))
	}
	if err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	return root, nil
}

// supersede puts aside what was kept of an earlier life of a bundle whose
// results are with the server now: later runs are to see those. from is the
// run directory; nil where that has gone.
func (c *Collector) supersede(bundle string, from fs.FileInfo) error {
	if c.Layout == "" {
		return nil
	}
	if err := makeWay(from, c.Layout.KeptDir(bundle)); err != nil {
		return &Error{What: "results", Err: fmt.Errorf("put aside what was kept before: %w", err), Retry: true}
	}
	return nil
}

// opened does what reads a tree. If something in it may not be read it is
// opened up and read again: the command was root where it ran and did not
// notice that it closed a file to its owner.
func opened(root *os.Root, read func() (string, error)) (string, error) {
	said, err := read()
	if errors.Is(err, fs.ErrPermission) {
		filetree.OpenUp(root)
		return read()
	}
	return said, err
}

// upload sends the results in root.
func (c *Collector) upload(ctx context.Context, run codalab.RunBundle, root *os.Root, progress func(string)) (string, error) {
	x := exclusionOf(run)
	excludes := func(below string, d fs.DirEntry) bool { return x.excludes(root, below, d) }
	u := &upload{tell: progress, now: c.Now}
	visit := func(below string, info fs.FileInfo) error {
		u.total.add(info)
		return tarstream.CheckPath(below)
	}
	if err := (walker{root, excludes, visit}).walk(ctx, "."); err != nil {
		return "", fmt.Errorf("count results: %w", err)
	}
	return u.total.String(), c.send(ctx, run.UUID, root, u, excludes)
}

// send packs a directory into the server's hands.
func (c *Collector) send(ctx context.Context, bundle string, root *os.Root, u *upload, excludes func(string, fs.DirEntry) bool) error {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := tarstream.Pack(ctx, w, root, ".", tarstream.PackOptions{
			Exclude: func(below string, d fs.DirEntry) bool {
				if excludes(below, d) {
					return true
				}
				u.packing(d)
				return false
			},
		})
		_ = w.CloseWithError(err) // always nil: io.PipeWriter
		packed <- err
	}()
	// codalab/worker/bundle_service_client.py: update_bundle_contents
	how := client.UploadOptions{Filename: "bundle.tar.gz", Unpack: true, Confirm: true}
	err := c.Contents.UploadContents(ctx, bundle, how, counted{r, u})
	_ = r.CloseWithError(errors.New("the upload ended")) // always nil: io.PipeReader
	if packErr := <-packed; packErr != nil && err == nil {
		err = packErr
	}
	var answer *codalab.Error
	if errors.As(err, &answer) && answer.UnpackFailed() { // the server is to blame, not the archive
		return &Error{What: "results", Err: err, Retry: true}
	}
	return err
}

// counted is a stream whose bytes an upload takes note of.
type counted struct {
	r io.Reader
	u *upload
}

// Read reads on.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.u.sending(n)
	return n, err
}
