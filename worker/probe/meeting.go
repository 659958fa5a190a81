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
	"github.com/cl-slurm/cl-slurm/internal/linkonce"
)

// Meeting is the directory in which a login node and one job meet.
type Meeting struct {
	// Dir is its absolute path, the same on both sides.
	Dir string
}

// The files of a meeting.
const (
	askedName   = "asked"
	startedName = "started"
	reportName  = "report.json"
	pingName    = "ping"
	pongName    = "pong"
	// The job's script writes the output of uname -m to MachineName, and that of cl-worker to
	// OutputName.
	MachineName = "machine"
	OutputName  = "output"
)

// lookEvery is the time between two checks for the other side's files.
const lookEvery = 20 * time.Millisecond

// Call makes a meeting's directory below another one.
func Call(below string) (Meeting, error) {
	dir, err := os.MkdirTemp(below, ".doctor-")
	if err != nil {
		return Meeting{}, fmt.Errorf("make a directory for a meeting: %w", err)
	}
	m := Meeting{Dir: dir}
	if err := m.write(askedName, []byte(rand.Text())); err != nil {
		return Meeting{}, errors.Join(err, m.End())
	}
	return m, nil
}

// End removes the meeting's directory.
func (m Meeting) End() error {
	if err := os.RemoveAll(m.Dir); err != nil {
		return fmt.Errorf("remove a meeting's directory: %w", err)
	}
	return nil
}

// Attend is the job's part. It adds its findings about the disk to the report and writes it. Then
// it waits for the login node's ping, until ctx ends, and answers it.
func (m Meeting) Attend(ctx context.Context, r Report) error {
	asked, err := os.ReadFile(m.path(askedName))
	if err != nil {
		return fmt.Errorf("attend a meeting: %w", err)
	}
	r.Asked = string(asked)
	if r.Owner, err = m.settle(ctx); err != nil {
		r.Meeting = err.Error()
	}
	data, err := json.Marshal(r)
	if err == nil {
		err = m.write(reportName, data)
	}
	if err != nil {
		return fmt.Errorf("attend a meeting: %w", err)
	}
	if err := m.await(ctx, pingName); err != nil {
		return fmt.Errorf("attend a meeting: %w", err)
	}
	return m.write(pongName, nil)
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
	data, err := os.ReadFile(m.path(reportName))
	if errors.Is(err, fs.ErrNotExist) {
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

// RoundTrip returns the time from writing a file here until the job's answer is visible here.
func (m Meeting) RoundTrip(ctx context.Context, now func() time.Time) (time.Duration, error) {
	began := now()
	if err := m.write(pingName, nil); err != nil {
		return 0, err
	}
	if err := m.await(ctx, pongName); err != nil {
		return 0, fmt.Errorf("wait for a node's answer: %w", err)
	}
	return now().Sub(began), nil
}

// Text returns a file that the job's script wrote. It returns "" while the file is not visible
// here.
func (m Meeting) Text(name string) string {
	data, err := os.ReadFile(m.path(name))
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
	standing, err := linkonce.Settle(ctx, m.path(startedName), []byte(token), 0o600, func(record []byte) (string, error) {
		if len(record) != len(token) {
			return "", errors.New("it is not a whole record")
		}
		return string(record), nil
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
		_, err := os.ReadFile(m.path(name))
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; %w", err, ctx.Err())
		case <-tick.C:
		}
	}
}

func (m Meeting) path(name string) string { return filepath.Join(m.Dir, name) }

func (m Meeting) write(name string, data []byte) error {
	return atomicfile.Write(m.path(name), data, 0o600)
}
