package main

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

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/worker/local"
)

// place is where a worker keeps what it has. A work directory is shared by any number of workers of one user,
// on any hosts:
//
//	WORKDIR/cache/          dependencies, of all workers
//	WORKDIR/images/         SIFs, of all workers
//	WORKDIR/workers/<id>/   the records and working directories of one worker's runs
//
// The ledger and the jobs of a worker are on a disk of its host: in WORKDIR/workers/<id>/ if that is one,
// else in the directory of the user's state, else below /var/tmp. The worker has its ledger locked from
// findPlace until release.
type place struct {
	id             string
	workDir, state string
	unlock         func() // nil while the ledger is not locked
}

func (p place) own() string    { return filepath.Join(workersDir(p.workDir), fileName(p.id)) }
func (p place) cache() string  { return filepath.Join(p.workDir, "cache") }
func (p place) images() string { return filepath.Join(p.workDir, "images") }
func (p place) ledger() string { return filepath.Join(p.state, "ledger.db") }
func (p place) jobs() string   { return filepath.Join(p.state, "jobs") }

func workersDir(workDir string) string { return filepath.Join(workDir, "workers") }

// fileName makes a file's name of a worker's id, which may have any characters.
func fileName(id string) string {
	name := url.QueryEscape(id)
	if name == "." || name == ".." {
		return "%2E" + name[1:]
	}
	return name
}

// search finds the place of a worker.
type search struct {
	program.Process
	host string
	of   owner
}

// findPlace returns the place of the worker with an id, and locks its ledger. Without an id it is the place
// of a worker that has ended on this host and left runs of the same owner, so that its runs are taken up; or
// else a new one, HOST(PID), as CodaLab's own worker has it (codalab/worker/main.py: parse_args). If another
// program has the ledger, the error wraps ledger.ErrLocked, and the place has no lock.
func findPlace(ctx context.Context, p program.Process, of owner, id string) (place, error) {
	var err error
	if of.WorkDir, err = makeWorkDir(of.WorkDir); err != nil {
		return place{}, fmt.Errorf("--work-dir: %w", err)
	}
	s := search{Process: p, of: of}
	if s.host, err = os.Hostname(); err != nil {
		return place{}, fmt.Errorf("find the name of this host: %w", err)
	}
	s.sweepStates(ctx)
	if id == "" {
		for _, left := range s.left(ctx) {
			if left.take(ctx, of) == nil { // else another worker was quicker
				return left, nil
			}
		}
		id = fmt.Sprintf("%s(%d)", s.host, os.Getpid())
	}
	return s.make(ctx, id)
}

// makeWorkDir makes a work directory, for this user alone, and returns its path without symbolic links.
func makeWorkDir(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		err = os.MkdirAll(workersDir(path), 0o700)
	}
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	for _, dir := range []string{path, workersDir(path)} {
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

// states returns the directories in which the ledger of a place may be, the best one first.
func (s search) states(at place) []string {
	dirs := []string{at.own()}
	for _, parent := range s.stateDirs() {
		dirs = append(dirs, filepath.Join(parent, s.host+"-"+fileName(at.id)))
	}
	return dirs
}

// stateDirs returns the directories on this host for the ledgers of work directories on network disks.
func (s search) stateDirs() []string {
	var dirs []string
	if dir := s.Getenv("XDG_STATE_HOME"); dir != "" {
		dirs = append(dirs, filepath.Join(dir, "cl-worker"))
	} else if home := s.Getenv("HOME"); home != "" {
		dirs = append(dirs, filepath.Join(home, ".local", "state", "cl-worker"))
	}
	return append(dirs, filepath.Join("/var/tmp", "cl-worker-"+strconv.Itoa(os.Getuid())))
}

// make makes the place of an id and takes it.
func (s search) make(ctx context.Context, id string) (place, error) {
	at := place{id: id, workDir: s.of.WorkDir}
	const tries = 5 // another worker of the id may remove the directories when it ends
	for try := 1; ; try++ {
		if err := s.makeState(&at); err != nil {
			return at, err
		}
		if err := at.take(ctx, s.of); err == nil || !errors.Is(err, fs.ErrNotExist) || try == tries {
			return at, err
		}
	}
}

// makeState makes the first directory for the ledger that is on a disk of this host.
func (s search) makeState(at *place) error {
	var failed error
	for _, dir := range s.states(*at) {
		err := ledger.MakeRoom(filepath.Join(dir, "ledger.db"))
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

// left returns the places of workers without a given id that have ended on this host and left runs of the
// owner. It changes nothing.
func (s search) left(ctx context.Context) []place {
	entries, err := os.ReadDir(workersDir(s.of.WorkDir))
	if err != nil {
		return nil
	}
	ofHost := regexp.MustCompile(`^` + regexp.QuoteMeta(s.host) + `\(\d+\)$`)
	var found []place
	for _, e := range entries {
		id, err := url.QueryUnescape(e.Name())
		if err != nil || !ofHost.MatchString(id) {
			continue
		}
		at := place{id: id, workDir: s.of.WorkDir}
		for _, at.state = range s.states(at) {
			if at.hasLeft(ctx, s.of) {
				found = append(found, at)
				break
			}
		}
	}
	return found
}

// hasLeft reports whether a worker of an owner has ended and left runs, which this process can take up.
func (p place) hasLeft(ctx context.Context, of owner) bool {
	if ledger.CheckPlace(p.ledger()) != nil || local.CheckNamespace(p.jobs()) != nil {
		return false
	}
	recorded, err := readOwner(p.state)
	if err != nil || !p.sameOwner(recorded, of) {
		return false
	}
	if locked, err := ledger.Locked(ctx, p.ledger()); err != nil || locked {
		return false
	}
	runs, err := p.runs(ctx)
	return err == nil && runs > 0
}

// runs counts the runs of the ledger that are not done.
func (p place) runs(ctx context.Context) (int, error) {
	book, err := ledger.OpenToRead(ctx, p.ledger())
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
// refuses the place if runs of another owner are left there. The directory of the ledger has to exist.
func (p *place) take(ctx context.Context, of owner) error {
	unlock, err := ledger.Lock(ctx, p.ledger())
	if err != nil {
		return err
	}
	if err = os.MkdirAll(p.own(), 0o700); err == nil {
		err = p.claim(ctx, of)
	}
	if err != nil {
		unlock()
		return err
	}
	p.unlock = unlock
	return nil
}

// claim records the owner.
func (p place) claim(ctx context.Context, of owner) error {
	recorded, err := readOwner(p.state)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case recorded == of:
		return nil
	case !p.sameOwner(recorded, of):
		runs, err := p.runs(ctx)
		if err != nil {
			return err
		}
		if runs > 0 {
			return program.Usage(fmt.Errorf("a worker of the name %q left %d runs of the user %s of %s, with the work directory %s: start it with these again, or give this one another --id",
				p.id, runs, recorded.User, recorded.Server, recorded.WorkDir))
		}
	}
	return of.write(p.state)
}

// release unlocks the ledger.
func (p place) release() {
	if p.unlock != nil {
		p.unlock()
	}
}

// remove removes the files of a worker that has ended, unless it has left runs. It returns how many these
// are. Nothing is kept of runs whose results the server has acknowledged, not even for the time for which a
// running worker keeps them: CodaLab's own worker removes a run when it is acknowledged, too
// (codalab/worker/worker_run_state.py: RunStateMachine._transition_from_FINALIZING).
func (p place) remove(ctx context.Context) (left int, err error) {
	if left, err = p.runs(ctx); err != nil || left > 0 {
		return left, err
	}
	return 0, errors.Join(removeAside(p.own()), removeAside(p.state))
}

// asidePrefix begins the name of a directory that is being removed.
const asidePrefix = ".ended-"

// removeAside removes a directory. It renames it first, so that nothing that a newcomer makes in its place
// is removed with it.
func removeAside(dir string) error {
	aside := filepath.Join(filepath.Dir(dir), asidePrefix+filepath.Base(dir))
	if err := os.RemoveAll(aside); err != nil { // of a removal that was interrupted
		return err
	}
	if err := os.Rename(dir, aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return os.RemoveAll(aside)
}

// removeEmpty removes the directories of a worker that was not started, unless something is in them.
func (p place) removeEmpty() {
	if p.workDir == "" {
		return
	}
	if _, err := os.Lstat(p.ledger()); p.unlock != nil && errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(filepath.Join(p.state, ownerName))
		_ = os.Remove(p.ledger() + ".lock")
		_ = os.Remove(p.state)
		_ = os.Remove(p.own())
	}
	_ = os.Remove(workersDir(p.workDir))
	_ = os.Remove(p.workDir)
}

// removeWorkDir removes what workers have made in the work directory, unless another worker has files in
// it, and the directory itself if nothing else is there.
func (p place) removeWorkDir() error {
	if err := os.Remove(workersDir(p.workDir)); err != nil { // not empty: another worker's
		return fmt.Errorf("another worker uses it: %w", err)
	}
	if err := p.removeCaches(); err != nil {
		return err
	}
	_ = os.Remove(p.workDir) // other files in it are not the worker's
	return nil
}

// removeCaches removes the caches unless a worker has begun. It renames them before it looks, so that a later
// newcomer makes caches of its own.
func (p place) removeCaches() error {
	var err error
	for _, dir := range []string{p.cache(), p.images()} {
		err = errors.Join(err, os.RemoveAll(p.aside(dir))) // of a removal that was interrupted
		if failed := os.Rename(dir, p.aside(dir)); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	if err == nil && !absent(workersDir(p.workDir)) {
		err = errors.New("another worker has just begun to use it")
	}
	for _, dir := range []string{p.cache(), p.images()} {
		if err == nil || os.Rename(p.aside(dir), dir) != nil { // else a newcomer has made one of its own
			err = errors.Join(err, os.RemoveAll(p.aside(dir)))
		}
	}
	return err
}

// aside is the name of a cache that is being removed.
func (p place) aside(cache string) string {
	return filepath.Join(p.workDir, asidePrefix+filepath.Base(cache))
}
