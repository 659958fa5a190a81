package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/subids"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// Uploads takes bundles' contents. *client.Client is one.
type Uploads interface {
	UploadContents(ctx context.Context, bundle string, o client.UploadOptions, body io.Reader) error
}

// Collector collects results. It is safe for concurrent use.
type Collector struct {
	Contents Uploads
	// Store is the server's own store, if this bridge shares its disk, and otherwise nil.
	Store *Store
	// Layout is the shared directory with the run directories.
	Layout spool.Layout
	// MaxBytes returns the limit of one upload; nil or 0 means the size of the disk with the results. A file counts with
	// its whole size, including holes, because an upload reads and sends them.
	MaxBytes func() int64
	// Sent, if not nil, is called with the number of bytes of each piece that an upload has sent.
	Sent func(bytes int)
	// Now reads the clock.
	Now func() time.Time

	together together
}

// Collect collects the results in a run directory, without links to dependencies and entries that
// match the run's exclude_patterns. If there is a Store, it moves them there, and otherwise it
// follows mode. It returns the details: a short description of the collected results. It calls
// progress repeatedly with one sentence, from one goroutine at a time.
func (c *Collector) Collect(ctx context.Context, run codalab.RunBundle, runDir string, mode spool.ResultsMode, progress func(string)) (string, error) {
	details, err := c.collect(ctx, run, runDir, mode, progress)
	if _, over := overQuota(err); over {
		return "", c.hold(ctx, run, runDir, err)
	}
	var known *transfer.Error
	final := errors.Is(err, fs.ErrPermission) || errors.Is(err, tarstream.ErrTooLarge)
	if final && !errors.As(err, &known) {
		return "", failed(err, false)
	}
	return details, err
}

func failed(err error, retry bool) error {
	return &transfer.Error{What: "results", Err: err, Retry: retry}
}

func (c *Collector) collect(ctx context.Context, run codalab.RunBundle, runDir string, mode spool.ResultsMode, progress func(string)) (string, error) {
	if c.Store != nil && run.Location != nil {
		if err := c.Store.Move(ctx, run, runDir); err != nil {
			return "", err
		}
		return "moved to " + *run.Location, c.supersede(run, nil)
	}
	if mode == spool.ResultsKeep {
		return c.keep(ctx, run, runDir, progress)
	}
	root, err := openClosed(runDir)
	if errors.Is(err, fs.ErrNotExist) {
		// The queue may have kept results when these were first collected.
		return c.keep(ctx, run, runDir, progress)
	}
	if err != nil {
		return "", failed(err, true)
	}
	defer func() { _ = root.Close() }() // only read
	details, err := openUpAndRetry(root, func() (string, error) { return c.upload(ctx, run, root, progress) })
	if err != nil {
		return "", err
	}
	from, err := root.Stat(".")
	if err != nil {
		return "", failed(err, true)
	}
	return details, c.supersede(run, from)
}

// Open opens the results in a run directory for reading, or those at the location to which Collect has
// moved them.
func (c *Collector) Open(run codalab.RunBundle, runDir string) (*os.Root, error) {
	move, none := readMove(runDir)
	var root *os.Root
	var err error
	if move.Moved { // runDir has only the rest of the copied files
		root, err = move.open()
	} else if root, err = os.OpenRoot(runDir); errors.Is(err, fs.ErrNotExist) && none == nil {
		root, err = move.open()
	}
	if errors.Is(err, fs.ErrNotExist) {
		root, err = os.OpenRoot(c.Layout.KeptDir(keptName(run.Identity())))
	}
	if err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	return root, nil
}

// supersede renames the kept results of an earlier life of a bundle, because the server has newer
// ones, which later runs must see. from is the run directory, or nil.
func (c *Collector) supersede(run codalab.RunBundle, from fs.FileInfo) error {
	if c.Layout == "" {
		return nil
	}
	if err := renameSuperseded(from, c.Layout.KeptDir(keptName(run.Identity()))); err != nil {
		return failed(fmt.Errorf("rename the earlier kept results: %w", err), true)
	}
	return nil
}

// openClosed opens a directory that a command may have closed to its owner, or given to a subordinate id of
// this user.
func openClosed(dir string) (*os.Root, error) {
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		if subids.IsForeign(info) {
			_ = subids.Reclaim(dir) // a failure shows below
		}
		if info.Mode()&0o700 != 0o700 {
			_ = os.Chmod(dir, info.Mode().Perm()|0o700) // as above
		}
	}
	return os.OpenRoot(dir)
}

// openUpAndRetry calls read, which reads a tree. If read lacks a permission, openUpAndRetry adds
// the owner's permissions and calls it again. A command that is root in its container does not
// notice that it closes a file to its owner.
func openUpAndRetry(root *os.Root, read func() (string, error)) (string, error) {
	text, err := read()
	if errors.Is(err, fs.ErrPermission) {
		filetree.OpenUp(root)
		return read()
	}
	return text, err
}

// upload sends the results in root. It counts them first, for the progress.
func (c *Collector) upload(ctx context.Context, run codalab.RunBundle, root *os.Root, progress func(string)) (string, error) {
	x := exclusionOf(run)
	most, err := c.mostBytes(root)
	if err != nil {
		return "", failed(err, true)
	}
	u, err := countUpload(ctx, root, x, most, nil)
	if err != nil {
		return "", fmt.Errorf("count results: %w", err)
	}
	u.tell = c.Sent
	const every = 250 * time.Millisecond
	progress("Uploading results: " + transfer.Progress{Total: u.total.bytes}.Amount() + ".")
	return u.details(), transfer.Tell(every, every, progress, u.sentence, func() error {
		return c.send(ctx, run.UUID, root, u, x.from(root))
	})
}

// countUpload counts the results in root that an upload sends. It fails beyond the most bytes, and once it has listed more entries
// than left; nil for any number.
func countUpload(ctx context.Context, root *os.Root, x exclusion, most int64, left *int) (*upload, error) {
	u := &upload{}
	visit := func(at place, info fs.FileInfo) error {
		if u.add(at.below, info); u.total.bytes > most {
			return fmt.Errorf("%w: with %s they have more than %s, the most that this bridge uploads; holes in files count as if they were full",
				tarstream.ErrTooLarge, quoted(at.below), codalab.FormatSize(most))
		}
		return tarstream.CheckPath(at.below)
	}
	return u, walker{skip: x.excludes, visit: visit, left: left}.walk(ctx, root)
}

// mostBytes returns the limit of an upload of root.
func (c *Collector) mostBytes(root *os.Root) (int64, error) {
	if c.MaxBytes != nil {
		if most := c.MaxBytes(); most > 0 {
			return most, nil
		}
	}
	disk, err := diskspace.Of(root.Name())
	if err != nil || disk.Total <= 0 { // some network file systems report 0 blocks
		return math.MaxInt64, err
	}
	return disk.Total, nil
}

func (c *Collector) send(ctx context.Context, bundle string, root *os.Root, u *upload, excludes func(string, fs.DirEntry) bool) error {
	r, w := io.Pipe()
	var packing errgroup.Group
	packing.Go(func() error {
		err := tarstream.Pack(ctx, w, root, ".", tarstream.PackOptions{Exclude: excludes, Read: u.pack})
		return errors.Join(err, w.CloseWithError(err))
	})
	// codalab/worker/bundle_service_client.py: update_bundle_contents
	options := client.UploadOptions{Filename: "bundle.tar.gz", Unpack: true, Confirm: true, AtLeast: u.total.extent()}
	err := c.Contents.UploadContents(ctx, bundle, options, io.TeeReader(r, u))
	_ = r.CloseWithError(errors.New("the upload ended")) // always nil: io.PipeReader
	if packErr := packing.Wait(); err == nil {
		err = packErr
	}
	if serverErr, ok := errors.AsType[*codalab.Error](err); ok && serverErr.UnpackFailed() { // the server has failed, not the archive
		return failed(err, true)
	}
	return err
}
