package probe

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/clocks"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/disktrial"
	"github.com/cl-slurm/cl-slurm/internal/linkonce"
)

// Meeting is the directory in which a login node and one job meet.
type Meeting struct {
	// Dir is its absolute path, the same on both sides.
	Dir string

	release []func() // give the login node's locks back
	looks   *int     // of the login node for the report
}

// The files of a meeting.
const (
	askedName   = "asked"
	startedName = "started"
	reportName  = "report.json"
	pingName    = "ping"
	pongName    = "pong"
	replaced    = "replaced"
	flockName   = "flock"
	rangesName  = "ranges"
	// The job's script writes the output of uname -m to MachineName, and that of cl-worker to
	// OutputName.
	MachineName = "machine"
	OutputName  = "output"
)

// lookEvery is the time between two checks for the other side's files.
const lookEvery = 20 * time.Millisecond

// Call makes a meeting's directory below another one.
func Call(ctx context.Context, below string) (Meeting, error) {
	dir, err := answer(ctx, writtenWithin, below, func() (string, error) { return os.MkdirTemp(below, ".doctor-") })
	if err != nil {
		return Meeting{}, fmt.Errorf("make a directory for a meeting: %w", err)
	}
	m := Meeting{Dir: dir, looks: new(int)}
	if err := errors.Join(m.replace(ctx), m.write(ctx, askedName, []byte(rand.Text()))); err != nil {
		return Meeting{}, errors.Join(err, m.End()) //nolint:contextcheck // also after the end of ctx
	}
	m.holdLocks(ctx)
	return m, nil
}

// writtenWithin bounds a write, which a busy disk flushes.
const writtenWithin = 30 * time.Second

// answer returns the results of a call on a directory's disk, or a *diskspace.SilentError if the call takes longer. The call
// then goes on in a goroutine until the disk answers.
func answer[T any](ctx context.Context, within time.Duration, dir string, call func() (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	result, err := background.Call(bounded, call)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = &diskspace.SilentError{Path: dir, For: within}
	}
	return result, err
}

// change calls a function that changes a directory.
func change(ctx context.Context, dir string, call func() error) error {
	_, err := answer(ctx, writtenWithin, dir, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// shared is the directory that has the meeting's.
func (m Meeting) shared() string { return filepath.Dir(m.Dir) }

// read returns the content of a file of the meeting.
func (m Meeting) read(ctx context.Context, name string) ([]byte, error) {
	return answer(ctx, diskspace.SilentAfter, m.shared(), func() ([]byte, error) { return os.ReadFile(m.path(name)) })
}

// lockWithin bounds a call for a lock. On an NFS server without a lock manager it takes minutes.
const lockWithin = 10 * time.Second

// locksOf are the kinds of locks, by the names of their files.
func locksOf() map[string]disktrial.Lock {
	return map[string]disktrial.Lock{flockName: disktrial.Flock, rangesName: disktrial.RangeLock}
}

// holdLocks takes the locks that the job will ask for. A disk without locks gets none, which the job finds by itself.
func (m *Meeting) holdLocks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	for name, lock := range locksOf() {
		release, err := background.Call(ctx, func() (func(), error) { return disktrial.Hold(m.path(name), lock) })
		if err == nil {
			m.release = append(m.release, release)
		}
	}
}

// askLocks asks for the locks that the login node holds. It returns nil if the login node holds none.
func (m Meeting) askLocks(ctx context.Context) *Locks {
	ctx, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	var l Locks
	for name, said := range map[string]*string{flockName: &l.Flock, rangesName: &l.RangeLock} {
		_, err := background.Call(ctx, func() (struct{}, error) { return struct{}{}, disktrial.Excluded(m.path(name), locksOf()[name]) })
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // the bridge is of an older release, or its disk has no locks
		case errors.Is(err, disktrial.ErrShared):
			*said = shared
		case errors.Is(err, context.DeadlineExceeded):
			*said = fmt.Sprintf("no answer within %s", lockWithin)
		case err != nil:
			*said = err.Error()
		}
	}
	return &l
}

// End removes the meeting's directory.
func (m Meeting) End() error {
	err := change(context.Background(), m.shared(), func() error {
		for _, release := range m.release {
			release()
		}
		return os.RemoveAll(m.Dir)
	})
	if err != nil {
		return fmt.Errorf("remove a meeting's directory: %w", err)
	}
	return nil
}

// Attend is the job's part. It adds its findings about the disk to the report and writes it. Then
// it waits for the login node's ping, until ctx ends, and answers it.
func (m Meeting) Attend(ctx context.Context, r Report, now func() time.Time) error {
	whole := context.WithoutCancel(ctx) // what is begun is written
	asked, err := m.read(whole, askedName)
	if err != nil {
		return fmt.Errorf("attend a meeting: %w", err)
	}
	r.Asked = string(asked)
	if r.Owner, err = m.settle(whole); err != nil {
		r.Meeting = err.Error()
	}
	r.Locks, r.Lost = m.askLocks(ctx), m.watch(ctx)
	data, err := json.Marshal(r)
	if err == nil {
		err = m.write(whole, reportName, data)
	}
	if err != nil {
		return fmt.Errorf("attend a meeting: %w", err)
	}
	if err := m.await(ctx, pingName); err != nil {
		return fmt.Errorf("attend a meeting: %w", err)
	}
	return m.write(whole, pongName, []byte(now().UTC().Format(time.RFC3339Nano)))
}

// recordLength is the length of each content of the file that the login node replaces.
const recordLength = 8 << 10

// replaceEvery is the number of looks between two replacements, a second. With NFS 4 the server may delegate each new file to
// the login node, and makes the job wait for a tenth of a second then: a file that is replaced again and again cannot be
// opened at all.
const replaceEvery = 10

// replace replaces a file by another of the same length. It need not outlast a crash.
func (m Meeting) replace(ctx context.Context) error {
	err := change(ctx, m.shared(), func() error {
		next := m.path(replaced + ".next")
		if err := os.WriteFile(next, []byte(strings.Repeat(rand.Text()[:1], recordLength)), 0o600); err != nil {
			return err
		}
		return os.Rename(next, m.path(replaced))
	})
	if err != nil {
		return fmt.Errorf("replace a file: %w", err)
	}
	return nil
}

// The job reads the file that the login node replaces this often, in somewhat more than a second.
const (
	watched     = 14
	watchEvery  = 80 * time.Millisecond
	watchWithin = 5 * time.Second
)

// watch reads the file that the login node replaces by rename(2). It returns the reason why a reader can lose such a file or
// get a part of it, or "". It returns in time, also if a read does not.
func (m Meeting) watch(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, watchWithin)
	defer cancel()
	lost, err := background.Call(ctx, func() (string, error) { return m.readAgain(ctx), nil })
	if err != nil {
		return "" // a slow disk loses nothing
	}
	return lost
}

func (m Meeting) readAgain(ctx context.Context) string {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for i := range watched {
		data, err := os.ReadFile(m.path(replaced))
		switch {
		case i == 0 && errors.Is(err, fs.ErrNotExist):
			return "" // the bridge is of an older release
		case err != nil:
			return "the node lost a file that the login node replaced by rename: " + err.Error()
		case len(data) != recordLength || strings.Trim(string(data), string(data[:1])) != "":
			return "the node saw a part of a file that the login node replaced by rename"
		}
		select {
		case <-ctx.Done():
			return ""
		case <-tick.C:
		}
	}
	return ""
}

// Heard is a job's report with the login node's findings about the disk.
type Heard struct {
	Report
	// Disk is the reason why the disk cannot be used although both sides see it. It is empty if the
	// disk works.
	Disk string `json:"disk,omitempty"`
}

// Hear returns the job's report, or false while there is none. It also settles the record of the
// start, and expects to find the job's.
func (m Meeting) Hear(ctx context.Context) (Heard, bool, error) {
	data, err := m.read(ctx, reportName)
	if errors.Is(err, fs.ErrNotExist) {
		if m.looks != nil {
			if *m.looks++; *m.looks%replaceEvery == 0 {
				_ = m.replace(ctx) // the job may watch now; a disk in trouble fails at other calls, too
			}
		}
		return Heard{}, false, nil
	}
	var h Heard
	if err == nil {
		err = json.Unmarshal(data, &h.Report)
	}
	if err != nil {
		return h, false, fmt.Errorf("read a node's report: %w", err)
	}
	asked, err := os.ReadFile(m.path(askedName))
	if err != nil {
		return h, false, fmt.Errorf("read the question to a node: %w", err)
	}
	own, err := m.settle(ctx)
	switch {
	case h.Asked != string(asked):
		h.Disk = fmt.Sprintf("it read %q, but %q was written", h.Asked, asked)
	case h.Meeting != "":
		h.Disk = h.Meeting
	case err != nil:
		h.Disk = err.Error()
	case own || !h.Owner:
		h.Disk = "a link that it made did not last: link(2) replaces or forgets names"
	}
	return h, true, nil
}

// Trip is a message to the job and its answer.
type Trip struct {
	// Took is the time from writing a file here until the job's answer is visible here.
	Took time.Duration
	// Clock is the node's clock against this host's. Known is not set if the cl-worker is of an older release.
	Clock clocks.Offset
	Known bool
}

// RoundTrip sends a message to the job, and waits for its answer.
func (m Meeting) RoundTrip(ctx context.Context, now func() time.Time) (Trip, error) {
	began := now()
	if err := m.write(ctx, pingName, nil); err != nil {
		return Trip{}, err
	}
	if err := m.await(ctx, pongName); err != nil {
		return Trip{}, fmt.Errorf("wait for a node's answer: %w", err)
	}
	seen := now()
	t := Trip{Took: seen.Sub(began)}
	if shown, err := time.Parse(time.RFC3339Nano, m.Text(ctx, pongName)); err == nil {
		t.Clock, t.Known = clocks.Between(began, seen, shown, 0), true
	}
	return t, nil
}

// Text returns a file that the job's script wrote. It returns "" while the file is not visible
// here, and if the disk does not answer.
func (m Meeting) Text(ctx context.Context, name string) string {
	data, err := m.read(ctx, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// settleWithin limits the time to settle the record of a start.
const settleWithin = 30 * time.Second

// settle settles the record of a start, and reports whether it is the caller's.
func (m Meeting) settle(ctx context.Context) (own bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	token := rand.Text()
	standing, err := background.Call(ctx, func() (string, error) {
		return linkonce.Settle(ctx, m.path(startedName), []byte(token), 0o600, func(record []byte) (string, error) {
			if len(record) != len(token) {
				return "", errors.New("it is not a whole record")
			}
			return string(record), nil
		})
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("a record of a start was not settled within %s: the disk is too slow", settleWithin)
	}
	return standing == token, err
}

func (m Meeting) await(ctx context.Context, name string) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		_, err := m.read(ctx, name)
		if silent := (*diskspace.SilentError)(nil); err == nil || errors.As(err, &silent) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; %w", err, ctx.Err())
		case <-tick.C:
		}
	}
}

func (m Meeting) path(name string) string { return filepath.Join(m.Dir, name) }

func (m Meeting) write(ctx context.Context, name string, data []byte) error {
	return change(ctx, m.shared(), func() error { return atomicfile.Write(m.path(name), data, 0o600) })
}
