package workdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// Dirs are the directories of one worker.
type Dirs struct {
	ID      string
	WorkDir string

	state  string // the directory of the ledger
	unlock func() // nil while the ledger is not locked
}

// Own returns the directory of the worker's runs and their records.
func (d Dirs) Own() string { return filepath.Join(Workers(d.WorkDir), FileName(d.ID)) }

// Cache returns the directory of dependencies, which all workers of the work directory share.
func (d Dirs) Cache() string { return filepath.Join(d.WorkDir, "cache") }

// Images returns the directory of SIFs, which all workers of the work directory share.
func (d Dirs) Images() string { return filepath.Join(d.WorkDir, "images") }

// Ledger returns the file of the worker's ledger.
func (d Dirs) Ledger() string { return filepath.Join(d.state, "ledger.db") }

// Jobs returns the directory of the worker's jobs.
func (d Dirs) Jobs() string { return filepath.Join(d.state, "jobs") }

// Workers returns the directory with the directories of all workers of a work directory.
func Workers(workDir string) string { return filepath.Join(workDir, "workers") }

// FileName makes a file's name of a worker's id, which may have any characters.
func FileName(id string) string {
	name := url.QueryEscape(id)
	if name == "." || name == ".." {
		return "%2E" + name[1:]
	}
	return name
}

// Search finds the directories of a worker on a host.
type Search struct {
	// Host is the name of this host.
	Host   string
	Getenv func(name string) string
	Now    func() time.Time
	// CheckJobs returns an error if this process cannot take up the jobs in a directory.
	CheckJobs func(dir string) error
}

// Find returns the directories of the worker with an id, and locks its ledger; the caller releases it. Without
// an id it takes those of a worker that has ended on this host and left runs of the same owner, so that its runs
// are taken up; else it makes new ones with the id HOST(PID), as CodaLab's own worker does (codalab/worker/main.py:
// parse_args). If another program has the ledger, the error wraps ledger.ErrLocked, and the ledger is not locked.
// The error is a *LeftRunsError if the worker of the id has left runs of another owner.
func (s Search) Find(ctx context.Context, of Owner, id string) (Dirs, error) {
	var err error
	if of.WorkDir, err = makeWorkDir(of.WorkDir); err != nil {
		return Dirs{}, fmt.Errorf("--work-dir: %w", err)
	}
	s.sweepStates(ctx)
	if id == "" {
		for _, left := range s.left(ctx, of) {
			if left.take(ctx, of) == nil { // else another worker was quicker
				return left, nil
			}
		}
		id = fmt.Sprintf("%s(%d)", s.Host, os.Getpid())
	}
	return s.make(ctx, of, id)
}

// makeWorkDir makes a work directory, for this user alone, and returns its path without symbolic links.
func makeWorkDir(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		err = os.MkdirAll(Workers(path), 0o700)
	}
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	for _, dir := range []string{path, Workers(path)} {
		if err == nil {
			err = checkOwner(dir, os.Geteuid())
		}
	}
	return path, err
}

// checkOwner refuses the directory of another user, in which everything is closed to this one. Root is
// refused nothing, and may have made the directory.
func checkOwner(dir string, user int) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if has, ok := info.Sys().(*syscall.Stat_t); ok && user != 0 && has.Uid != 0 && int(has.Uid) != user {
		return fmt.Errorf("%s belongs to another user: give this worker a directory of its own", dir)
	}
	return nil
}

// states returns the directories in which the ledger of a worker may be, the best one first.
func (s Search) states(at Dirs) []string {
	dirs := []string{at.Own()}
	for _, parent := range StateDirs(s.Getenv) {
		dirs = append(dirs, filepath.Join(parent, s.Host+"-"+FileName(at.ID)))
	}
	return dirs
}

// StateDirs returns the directories on this host for files of workers whose work directories are on network
// disks, the best one first: that of the user's state, and one below /var/tmp.
func StateDirs(getenv func(name string) string) []string {
	var dirs []string
	if dir := getenv("XDG_STATE_HOME"); dir != "" {
		dirs = append(dirs, filepath.Join(dir, "cl-worker"))
	} else if home := getenv("HOME"); home != "" {
		dirs = append(dirs, filepath.Join(home, ".local", "state", "cl-worker"))
	}
	return append(dirs, filepath.Join("/var/tmp", "cl-worker-"+strconv.Itoa(os.Getuid())))
}

// make makes the directories of an id and takes them.
func (s Search) make(ctx context.Context, of Owner, id string) (Dirs, error) {
	at := Dirs{ID: id, WorkDir: of.WorkDir}
	const tries = 5 // another worker of the id may remove the directories when it ends
	for try := 1; ; try++ {
		if err := s.makeState(&at); err != nil {
			return at, err
		}
		if err := at.take(ctx, of); err == nil || !errors.Is(err, fs.ErrNotExist) || try == tries {
			return at, err
		}
	}
}

// makeState makes the first directory for the ledger that is on a disk of this host.
func (s Search) makeState(at *Dirs) error {
	var failed error
	for _, dir := range s.states(*at) {
		err := ledger.MakeDir(filepath.Join(dir, "ledger.db"))
		if err == nil {
			at.state = dir
			return nil
		}
		failed = errors.Join(failed, err)
		if !errors.Is(err, ledger.ErrNetwork) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return failed
}

// left returns the directories of workers without a given id that have ended on this host and left runs of the
// owner. It changes nothing.
func (s Search) left(ctx context.Context, of Owner) []Dirs {
	entries, err := os.ReadDir(Workers(of.WorkDir))
	if err != nil {
		return nil
	}
	ofHost := regexp.MustCompile(`^` + regexp.QuoteMeta(s.Host) + `\(\d+\)$`)
	var found []Dirs
	for _, e := range entries {
		id, err := url.QueryUnescape(e.Name())
		if err != nil || !ofHost.MatchString(id) {
			continue
		}
		at := Dirs{ID: id, WorkDir: of.WorkDir}
		for _, at.state = range s.states(at) {
			if s.hasLeft(ctx, at, of) {
				found = append(found, at)
				break
			}
		}
	}
	return found
}

// hasLeft reports whether a worker of an owner has ended and left runs, which this process can take up.
func (s Search) hasLeft(ctx context.Context, d Dirs, of Owner) bool {
	if ledger.CheckPlace(d.Ledger()) != nil || s.CheckJobs(d.Jobs()) != nil {
		return false
	}
	recorded, err := readOwner(d.state)
	if err != nil || !d.sameOwner(recorded, of) {
		return false
	}
	if locked, err := ledger.Locked(ctx, d.Ledger()); err != nil || locked {
		return false
	}
	runs, err := d.runs(ctx)
	return err == nil && runs > 0
}

// runs counts the runs of the ledger that are not done.
func (d Dirs) runs(ctx context.Context) (int, error) {
	book, err := ledger.OpenToRead(ctx, d.Ledger())
	if errors.Is(err, ledger.ErrAbsent) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	rows, err := book.Outline(ctx)
	return len(rows.Rows), errors.Join(err, book.Close())
}

// take locks the ledger, records the owner, and makes the worker's directory, which other workers see. It
// fails if runs of another owner are left there. The directory of the ledger has to exist.
func (d *Dirs) take(ctx context.Context, of Owner) error {
	unlock, err := ledger.Lock(ctx, d.Ledger())
	if err != nil {
		return err
	}
	if err = os.MkdirAll(d.Own(), 0o700); err == nil {
		err = d.claim(ctx, of)
	}
	if err != nil {
		unlock()
		return err
	}
	d.unlock = unlock
	return nil
}

// claim records the owner.
func (d Dirs) claim(ctx context.Context, of Owner) error {
	recorded, err := readOwner(d.state)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case recorded == of:
		return nil
	case !d.sameOwner(recorded, of):
		runs, err := d.runs(ctx)
		if err != nil {
			return err
		}
		if runs > 0 {
			return &LeftRunsError{ID: d.ID, Runs: runs, Of: recorded}
		}
	}
	return of.write(d.state)
}

// Release unlocks the ledger.
func (d Dirs) Release() {
	if d.unlock != nil {
		d.unlock()
	}
}

// Remove removes the files of a worker that has ended, unless it has left runs. It returns how many these
// are. Nothing is kept of runs whose results the server has acknowledged, not even for the time for which a
// running worker keeps them: CodaLab's own worker removes a run when it is acknowledged, too
// (codalab/worker/worker_run_state.py: RunStateMachine._transition_from_FINALIZING).
func (d Dirs) Remove(ctx context.Context) (left int, err error) {
	if left, err = d.runs(ctx); err != nil || left > 0 {
		return left, err
	}
	return 0, errors.Join(removeAside(d.Own()), removeAside(d.state))
}

// asidePrefix begins the name of a directory that is being removed.
const asidePrefix = ".ended-"

// removeAside removes a directory. It renames it first, so that nothing that a newcomer makes in its place
// is removed with it.
func removeAside(dir string) error {
	aside := filepath.Join(filepath.Dir(dir), asidePrefix+filepath.Base(dir))
	if err := filetree.Remove(aside); err != nil { // of a removal that was interrupted
		return err
	}
	if err := os.Rename(dir, aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return filetree.Remove(aside)
}

// RemoveEmpty removes the directories of a worker that was not started, unless something is in them.
func (d Dirs) RemoveEmpty() {
	if d.WorkDir == "" {
		return
	}
	if _, err := os.Lstat(d.Ledger()); d.unlock != nil && errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(filepath.Join(d.state, ownerName))
		_ = os.Remove(d.Ledger() + ".lock")
		_ = os.Remove(d.state)
		_ = os.Remove(d.Own())
	}
	_ = os.Remove(Workers(d.WorkDir))
	_ = os.Remove(d.WorkDir)
}

// RemoveWorkDir removes the files that workers have made in the work directory, unless another worker has some
// there, and the directory itself if nothing else is in it.
func (d Dirs) RemoveWorkDir() error {
	if err := os.Remove(Workers(d.WorkDir)); err != nil { // not empty: another worker's
		return fmt.Errorf("another worker uses it: %w", err)
	}
	if err := d.removeCaches(); err != nil {
		return err
	}
	_ = os.Remove(d.WorkDir) // other files in it are not the worker's
	return nil
}

// removeCaches removes the caches unless a worker has begun. It renames them before it looks, so that a later
// newcomer makes caches of its own.
func (d Dirs) removeCaches() error {
	var err error
	for _, dir := range []string{d.Cache(), d.Images()} {
		err = errors.Join(err, filetree.Remove(d.aside(dir))) // of a removal that was interrupted
		if failed := os.Rename(dir, d.aside(dir)); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	if err == nil && !absent(Workers(d.WorkDir)) {
		err = errors.New("another worker has just begun to use it")
	}
	for _, dir := range []string{d.Cache(), d.Images()} {
		if err == nil || os.Rename(d.aside(dir), dir) != nil { // else a newcomer has made one of its own
			err = errors.Join(err, filetree.Remove(d.aside(dir)))
		}
	}
	return err
}

// aside returns the name of a cache that is being removed.
func (d Dirs) aside(cache string) string {
	return filepath.Join(d.WorkDir, asidePrefix+filepath.Base(cache))
}
