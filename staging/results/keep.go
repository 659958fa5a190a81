package results

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// keep moves the results to the directory of kept results and sends their listing to the server. It
// may be called again after a crash between any two steps: the move is one rename, and the other
// steps begin anew.
func (c *Collector) keep(ctx context.Context, run codalab.RunBundle, runDir string, progress func(string)) (string, error) {
	if !codalab.IsUUID(run.UUID) { // it becomes a name on the disk
		return "", failed(fmt.Errorf("%q is no UUID", run.UUID), false)
	}
	kept, err := c.renameToKept(run.Identity(), runDir)
	if err != nil {
		return "", err
	}
	root, err := openClosed(kept)
	if err != nil {
		return "", failed(err, true)
	}
	defer func() { _ = root.Close() }() // only used for paths
	return openUpAndRetry(root, func() (string, error) { return c.sendListing(ctx, run, kept, root, progress) })
}

// keptName returns the name of a bundle's kept results. The digest distinguishes bundles that had
// the same UUID one after the other. If the server does not tell the bundle's creation time, the
// UUID alone is the name.
func keptName(id codalab.Identity) string {
	if id.Created == 0 {
		return id.UUID
	}
	return id.UUID + "-" + id.Digest()
}

// renameToKept renames a run directory to a directory of kept results, and returns its path.
// It judges by the state after the rename: on a network file system a failed rename may have
// succeeded, and a removed name may stay visible for a while. Another bridge may do the same at the
// same time.
func (c *Collector) renameToKept(of codalab.Identity, runDir string) (kept string, err error) {
	from, err := os.Lstat(runDir)
	if errors.Is(err, fs.ErrNotExist) {
		kept = c.Layout.KeptDir(keptName(of))
		return kept, c.explainMissing(kept, runDir)
	}
	if err != nil {
		return "", failed(err, true)
	}
	kept = c.Layout.KeptDir(keptName(of))
	if from.Mode().Perm()&0o700 != 0o700 { // a rename needs write permission
		_ = os.Chmod(runDir, 0o700)
	}
	if err = os.Rename(runDir, kept); err != nil && isAt(from, runDir) {
		err = errors.Join(renameSuperseded(from, kept), os.Rename(runDir, kept))
	}
	if !isAt(from, kept) {
		return "", failed(fmt.Errorf("keep results: %w", cmp.Or(err, fs.ErrExist)), true)
	}
	// From here on the run directory counts as moved. A crash of the file server must not bring it
	// back, because the sweep would remove it later.
	if err := errors.Join(atomicfile.SyncDir(c.Layout.KeptDirs()), atomicfile.SyncDir(filepath.Dir(runDir))); err != nil {
		return "", failed(err, true)
	}
	return kept, nil
}

// renameSuperseded renames kept results under a bundle's name, so that the name is free. They belong to an
// earlier life of the bundle, which the server has forgotten. If another bridge has just moved the
// run directory there, renameSuperseded moves it back. from is the run directory, or nil.
func renameSuperseded(from fs.FileInfo, kept string) error {
	_, err := os.Lstat(kept)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	superseded := ""
	for n := 1; err == nil; n++ {
		superseded = fmt.Sprintf("%s.%d", kept, n)
		_, err = os.Lstat(superseded)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = os.Rename(kept, superseded)
	if from != nil && isAt(from, superseded) {
		err = os.Rename(superseded, kept)
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(kept))
}

// explainMissing returns nil if the run directory is missing because the results are kept.
// Otherwise it returns an error: the shared disk is missing, or the results are.
func (c *Collector) explainMissing(kept, runDir string) error {
	if _, err := os.Lstat(kept); err == nil {
		return nil
	}
	if _, err := os.Stat(c.Layout.Runs()); err != nil {
		return failed(fmt.Errorf("find the shared disk: %w", err), true)
	}
	return failed(fmt.Errorf("the run directory %s is gone", runDir), false)
}

func isAt(info fs.FileInfo, path string) bool {
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(info, there)
}

// sendListing sends the listing of kept results. It writes the listing next to the bundle's
// records, and a sweep removes both if this process is killed.
func (c *Collector) sendListing(ctx context.Context, run codalab.RunBundle, kept string, root *os.Root, progress func(string)) (string, error) {
	records := c.Layout.BundleDir(run.UUID)
	if err := os.Mkdir(records, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", failed(fmt.Errorf("write listing: %w", err), true)
	}
	listingDir, err := os.MkdirTemp(records, "listing-")
	if err != nil {
		return "", failed(fmt.Errorf("write listing: %w", err), true)
	}
	defer func() { _ = filetree.Remove(listingDir) }() // a sweep removes it otherwise
	l := listing{kept: kept, now: c.Now, tell: progress, excluded: exclusionOf(run)}
	if err := l.write(ctx, root, listingDir); err != nil {
		return "", fmt.Errorf("write listing: %w", err)
	}
	archive, err := os.OpenRoot(listingDir)
	if err != nil {
		return "", fmt.Errorf("read listing: %w", err)
	}
	defer func() { _ = archive.Close() }() // only read
	err = c.send(ctx, run.UUID, archive, &upload{}, func(string, fs.DirEntry) bool { return false })
	return fmt.Sprintf("the listing of %s that stay in %s", &l.tally, kept), err
}

// ErrRemoved means that results were kept on the shared disk and were removed.
var ErrRemoved = errors.New("its results were kept on the cluster's disk and have been removed there; the server has their listing only")

// FindKeptResults returns the path of a part of a bundle's results, if they are kept here. The server has
// only their listing, which is useless to a command. what names the part in errors. of is the
// bundle's identity, so that results of another bundle of its UUID are not found.
func FindKeptResults(layout spool.Layout, what string, of codalab.Identity, part codalab.Target) (path string, found bool, err error) {
	if layout == "" || !codalab.IsUUID(part.BundleUUID) {
		return "", false, nil
	}
	refused := func(err error, retry bool) error { return &transfer.Error{What: what, Err: err, Retry: retry} }
	name := keptName(of)
	root, err := filepath.EvalSymlinks(layout.KeptDir(name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(layout.KeptDirs()); err != nil {
			return "", false, &transfer.Error{What: what, Err: fmt.Errorf("find the shared disk, where its results may be kept: %w", err), Retry: true, IsOutage: true}
		}
		// The sweep restores results that a bundle has begun to need.
		if _, err := os.Lstat(layout.KeptRemovingDir(name)); err == nil {
			return "", false, refused(errors.New("its results, which were kept here, are being removed"), true)
		}
		root, err = filepath.EvalSymlinks(layout.KeptDir(name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, refused(err, true)
	}
	path, err = filepath.EvalSymlinks(filepath.Join(root, part.Subpath))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", false, nil // the listing itself may be meant; if not, the server refuses it
	case err != nil:
		return "", false, refused(err, true)
	case !subpath.Within(path, root):
		return "", false, refused(errors.New("a link that leads out of the bundle"), false)
	}
	return path, true, nil
}

// CheckListing returns ErrRemoved if the results of a bundle were kept here and were removed, so
// that the server has only their listing. A command must not get the listing in the place of
// results, but part may be the listing itself. head returns the first bytes of the bundle's
// ListingName, or "" if it has none.
func CheckListing(layout spool.Layout, of codalab.Identity, part codalab.Target, head func() (string, error)) error {
	if layout == "" || part.Subpath == ListingName {
		return nil
	}
	if _, err := os.Lstat(layout.KeptDir(keptName(of))); err == nil {
		return nil // they do not have the part, as the server will report
	}
	text, err := head()
	if err == nil && isListing(text, layout.KeptDir(part.BundleUUID)) {
		err = ErrRemoved
	}
	return err
}
