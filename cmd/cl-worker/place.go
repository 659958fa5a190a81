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

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// place is where a worker keeps what it has. A work directory is shared by any number of workers on any
// hosts:
//
//	WORKDIR/cache/          dependencies, of all workers
//	WORKDIR/images/         SIFs, of all workers
//	WORKDIR/workers/<id>/   the records and working directories of one worker's runs
//
// The ledger and the jobs of a worker are on a disk of its host: in WORKDIR/workers/<id>/ if that is one,
// else in the directory of the user's state, else below /var/tmp.
type place struct {
	id             string
	workDir, state string
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

// findPlace returns the place of the worker with an id; of the one that defaultID chooses if it is empty.
func findPlace(ctx context.Context, p program.Process, workDir, id string) (place, error) {
	workDir, err := filepath.Abs(workDir)
	if err == nil {
		err = os.MkdirAll(workersDir(workDir), 0o770) //nolint:gosec // a group may share it (codalab/worker/main.py: main)
	}
	if err != nil {
		return place{}, fmt.Errorf("--work-dir: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return place{}, fmt.Errorf("find the name of this host: %w", err)
	}
	if id == "" {
		id = defaultID(ctx, p, workDir, host)
	}
	at := place{id: id, workDir: workDir}
	at.state, err = stateDir(p, at, host)
	return at, err
}

// stateDir returns the first place for a worker's ledger that is on a disk of this host.
func stateDir(p program.Process, at place, host string) (string, error) {
	name := filepath.Join("cl-worker", host+"-"+fileName(at.id))
	dirs := []string{at.own()}
	if dir := p.Getenv("XDG_STATE_HOME"); dir != "" {
		dirs = append(dirs, filepath.Join(dir, name))
	} else if home := p.Getenv("HOME"); home != "" {
		dirs = append(dirs, filepath.Join(home, ".local", "state", name))
	}
	dirs = append(dirs, filepath.Join("/var/tmp", "cl-worker-"+strconv.Itoa(os.Getuid()), host+"-"+fileName(at.id)))
	var failed error
	for _, dir := range dirs {
		err := ledger.MakeRoom(filepath.Join(dir, "ledger.db"))
		if err == nil {
			return dir, nil
		}
		failed = errors.Join(failed, err)
		if !errors.Is(err, ledger.ErrNetwork) && !errors.Is(err, fs.ErrPermission) {
			return "", err
		}
	}
	return "", failed
}

// defaultID is the id of a worker that is given none: HOST(PID), as CodaLab's own worker has it
// (codalab/worker/main.py: parse_args). But if a worker of such a name has ended on this host and left runs
// in the work directory, it is that one's, so that its runs are taken up.
func defaultID(ctx context.Context, p program.Process, workDir, host string) string {
	fresh := fmt.Sprintf("%s(%d)", host, os.Getpid())
	entries, err := os.ReadDir(workersDir(workDir))
	if err != nil {
		return fresh
	}
	ofHost := regexp.MustCompile(`^` + regexp.QuoteMeta(host) + `\(\d+\)$`)
	for _, e := range entries {
		id, err := url.QueryUnescape(e.Name())
		if err != nil || !ofHost.MatchString(id) {
			continue
		}
		at := place{id: id, workDir: workDir}
		if at.state, err = stateDir(p, at, host); err == nil && leftRuns(ctx, at) {
			return id
		}
	}
	return fresh
}

// leftRuns reports whether a worker has ended and left runs.
func leftRuns(ctx context.Context, at place) bool {
	if _, err := os.Stat(at.ledger()); err != nil {
		return false
	}
	unlock, err := ledger.Lock(ctx, at.ledger())
	if err != nil {
		return false // it works
	}
	defer unlock()
	book, err := ledger.OpenToRead(ctx, at.ledger())
	if err != nil {
		return false
	}
	defer book.Close() //nolint:errcheck // it was only read
	rows, err := book.Outline(ctx)
	return err == nil && len(rows.Rows) > 0
}

// remove removes the files of a worker that has ended, unless it has left runs. It returns how many these
// are. The worker holds no lock any more, so another of its name may have begun: that one's files stay.
func (p place) remove(ctx context.Context) (left int, err error) {
	unlock, err := ledger.Lock(ctx, p.ledger())
	if errors.Is(err, ledger.ErrLocked) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer unlock()
	book, err := ledger.OpenToRead(ctx, p.ledger())
	if err != nil {
		return 0, err
	}
	rows, err := book.Outline(ctx)
	if err := errors.Join(err, book.Close()); err != nil {
		return 0, err
	}
	if len(rows.Rows) > 0 {
		return len(rows.Rows), nil
	}
	return 0, errors.Join(os.RemoveAll(p.own()), os.RemoveAll(p.state))
}

// removeEmpty removes the directories of a worker that was not started, unless something is in them.
func (p place) removeEmpty() {
	for _, dir := range []string{p.state, p.own(), workersDir(p.workDir), p.workDir} {
		if p.workDir != "" && dir != "" {
			_ = os.Remove(dir)
		}
	}
}

// removeWorkDir removes what workers have made in the work directory, unless another worker has files in
// it, and the directory itself if nothing else is there.
func (p place) removeWorkDir() error {
	if err := os.Remove(workersDir(p.workDir)); err != nil { // not empty: another worker's
		return fmt.Errorf("another worker uses it: %w", err)
	}
	if err := errors.Join(os.RemoveAll(p.cache()), os.RemoveAll(p.images())); err != nil {
		return err
	}
	_ = os.Remove(p.workDir) // other files in it are not the worker's
	return nil
}
