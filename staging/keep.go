package staging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// keep moves the results to where the shared disk keeps them and sends a
// listing in their stead. A crash between any two steps is mended by doing it
// again: the move is one rename, and all that follows begins anew.
func (c *Collector) keep(ctx context.Context, run codalab.RunBundle, dir string, progress func(string)) (string, error) {
	if !codalab.IsUUID(run.UUID) { // it becomes a name on the disk
		return "", &Error{What: "results", Err: fmt.Errorf("%q is no UUID", run.UUID)}
	}
	if err := c.move(run.UUID, dir); err != nil {
		return "", err
	}
	kept := c.Layout.KeptDir(run.UUID)
	root, err := openClosed(kept)
	if err != nil {
		return "", &Error{What: "results", Err: err, Retry: true}
	}
	defer func() { _ = root.Close() }() // only read, and what was excluded removed
	return opened(root, func() (string, error) { return c.sendListing(ctx, run, kept, root, progress) })
}

// move renames a run directory to where results are kept. What it came to is
// read back: on a network file system a rename may have been done that failed,
// and a name that has gone may be shown for a while. Another bridge may do the
// same at the same time.
func (c *Collector) move(bundle, dir string) error {
	to := c.Layout.KeptDir(bundle)
	from, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return c.gone(to, dir)
	}
	if err != nil {
		return &Error{What: "results", Err: err, Retry: true}
	}
	if from.Mode().Perm()&0o700 != 0o700 { // only who may write it may rename it
		_ = os.Chmod(dir, 0o700) //nolint:gosec // a directory needs x; what fails shows below
	}
	if err = os.Rename(dir, to); err != nil && isAt(from, dir) { // which leaves alone what is there
		err = errors.Join(makeWay(from, to), os.Rename(dir, to))
	}
	if !isAt(from, to) {
		return &Error{What: "results", Err: fmt.Errorf("keep results: %w", cmp.Or(err, fs.ErrExist)), Retry: true}
	}
	// From here on the run directory counts as moved, and is not to come back
	// with a crash of the file server: it would be removed some day.
	if err := errors.Join(atomicfile.SyncDir(c.Layout.KeptDirs()), atomicfile.SyncDir(filepath.Dir(dir))); err != nil {
		return &Error{What: "results", Err: err, Retry: true}
	}
	return nil
}

// makeWay renames what was kept under a bundle's name before: results of an
// earlier life of the bundle, which the server forgot. They stay, under another
// name. If another bridge has just moved the run directory, from, there, it is
// put back. from is nil where there is none.
func makeWay(from fs.FileInfo, to string) error {
	_, err := os.Lstat(to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing is in the way
	}
	aside := ""
	for n := 1; err == nil; n++ {
		aside = fmt.Sprintf("%s.%d", to, n)
		_, err = os.Lstat(aside)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = os.Rename(to, aside)
	if from != nil && isAt(from, aside) {
		err = os.Rename(aside, to)
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(to))
}

// gone says what it means that there is no run directory: the results were
// moved, the shared disk is not there, or the results are not.
func (c *Collector) gone(kept, dir string) error {
	if _, err := os.Lstat(kept); err == nil {
		return nil
	}
	if _, err := os.Stat(c.Layout.Runs()); err != nil {
		return &Error{What: "results", Err: fmt.Errorf("find the shared disk: %w", err), Retry: true}
	}
	return &Error{What: "results", Err: fmt.Errorf("the working directory %s is gone", dir)}
}

func isAt(info fs.FileInfo, path string) bool {
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(info, there)
}

// sendListing sends the listing of kept results, and removes from them what is
// no result. The listing is written beside the bundle's records, with which it
// goes if this process does not remove it.
func (c *Collector) sendListing(ctx context.Context, run codalab.RunBundle, kept string, root *os.Root, progress func(string)) (string, error) {
	beside := c.Layout.BundleDir(run.UUID)
	if err := os.Mkdir(beside, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("write listing: %w", err)
	}
	dir, err := os.MkdirTemp(beside, "listing-")
	if err != nil {
		return "", fmt.Errorf("write listing: %w", err)
	}
	defer func() { _ = filetree.Remove(dir) }() // else it goes with what is beside it
	l := listing{kept: kept, now: c.Now, tell: progress, excluded: exclusionOf(run)}
	if err := l.write(ctx, root, dir); err != nil {
		return "", fmt.Errorf("write listing: %w", err)
	}
	archive, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("read listing: %w", err)
	}
	defer func() { _ = archive.Close() }() // only read
	u := &upload{tell: func(string) {}, now: c.Now}
	err = c.send(ctx, run.UUID, archive, u, func(string, fs.DirEntry) bool { return false })
	return fmt.Sprintf("the listing of %s that stay in %s", &l.tally, kept), err
}

// kept finds a dependency among the results that are kept here. The server has
// but their listing, which is of no use to a command.
func (s *Stager) kept(d codalab.Dependency, target codalab.Target) (source string, ok bool, err error) {
	if s.Layout == "" || !codalab.IsUUID(target.BundleUUID) {
		return "", false, nil
	}
	what := "dependency " + d.ChildPath + " (" + target.String() + ")"
	refused := func(err error, retry bool) error { return &Error{What: what, Err: err, Retry: retry} }
	root, err := filepath.EvalSymlinks(s.Layout.KeptDir(target.BundleUUID))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(s.Layout.KeptDirs()); err != nil {
			return "", false, &Error{What: what, Err: fmt.Errorf("find the shared disk, where its results may be kept: %w", err), Retry: true, Away: true}
		}
		// What is about to be removed may be put back, for us.
		if _, err := os.Lstat(s.Layout.KeptAside(target.BundleUUID)); err == nil {
			return "", false, refused(errors.New("its results, which were kept here, are being removed"), true)
		}
		root, err = filepath.EvalSymlinks(s.Layout.KeptDir(target.BundleUUID))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, refused(err, true)
	}
	source, err = filepath.EvalSymlinks(filepath.Join(root, target.Subpath))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", false, nil // the listing itself may be meant; else the server says that there is no such thing
	case err != nil:
		return "", false, refused(err, true)
	case source != root && !strings.HasPrefix(source, root+"/"):
		return "", false, refused(errors.New("a link that leads out of the bundle"), false)
	}
	return source, true, nil
}

// errRemoved means results that were kept on the shared disk and were removed.
var errRemoved = errors.New("its results were kept on the cluster's disk and have been removed there; the server has their listing only")

// checkListing refuses a target whose bundle has nothing but a listing on the
// server, since the results that were kept here have been removed: no command
// is to take that for the results. The listing itself may be had. begins returns
// how the bundle's kept.txt begins, if it has one.
func (s *Stager) checkListing(t codalab.Target, begins func() (string, error)) error {
	if s.Layout == "" || t.Subpath == listingName {
		return nil
	}
	kept := s.Layout.KeptDir(t.BundleUUID)
	if _, err := os.Lstat(kept); err == nil {
		return nil // they lack the path that is asked for, as the server will say
	}
	text, err := begins()
	if err == nil && isListing(text, kept) {
		err = errRemoved
	}
	return err
}

// titleAtMost bounds how much of a listing is read: its title and a path.
const titleAtMost = 8 << 10

// listings remember for a while how bundles' kept.txt on the server begin: many
// parts of one may be wanted at once.
type listings struct {
	mu    sync.Mutex
	known map[string]*listingBegin // by bundle
}

// listingBegin is one of them. Who has what is in turn may ask, and set the rest.
type listingBegin struct {
	turn  chan struct{}
	asked bool
	text  string
}

// listedFor is how long it is remembered how a bundle's kept.txt begins.
const listedFor = time.Minute

// of is a bundle's, which is forgotten after a while.
func (l *listings) of(bundle string) *listingBegin {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[string]*listingBegin{}
	}
	if l.known[bundle] == nil {
		l.known[bundle] = &listingBegin{turn: make(chan struct{}, 1)}
		time.AfterFunc(listedFor, func() { l.forget(bundle) })
	}
	return l.known[bundle]
}

func (l *listings) forget(bundle string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, bundle)
}

// listingOf is how a bundle's kept.txt on the server begins, asked for when it is
// the download's turn.
func (s *Stager) listingOf(ctx context.Context, d *download, bundle string) (string, error) {
	l := s.listings.of(bundle)
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	}
	if l.asked {
		return l.text, nil
	}
	err := s.downloads.do(ctx, d, func() (err error) {
		l.text, err = s.askListing(ctx, bundle)
		return err
	})
	l.asked = err == nil
	return l.text, err
}

func (s *Stager) askListing(ctx context.Context, bundle string) (string, error) {
	t := codalab.Target{BundleUUID: bundle, Subpath: listingName}
	info, err := s.Contents.ContentsInfo(ctx, t, 0)
	var answer *codalab.Error
	switch {
	case errors.As(err, &answer) && !answer.Transient():
		return "", nil // there is none, or the download is refused as well
	case err != nil:
		return "", err
	case info.Type != codalab.TargetFile || info.Size < int64(len(listingTitle)):
		return "", nil
	}
	r, err := s.Contents.OpenContents(ctx, t, &client.Range{Length: titleAtMost})
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(r, titleAtMost))
	return string(text), errors.Join(err, r.Close())
}
