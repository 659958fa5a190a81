package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// pulseEvery is how often a bridge notes how it stands with the world.
const pulseEvery = 10 * time.Second

// pulse is what a bridge notes for cl-bridge status, in a file of its own: the
// ledger keeps what must last.
type pulse struct {
	Host    string    `json:"host"`
	Process int       `json:"process"`
	Started time.Time `json:"started"`
	At      time.Time `json:"at"`
	// Ended is when it ended, and Failure why if that was not by a signal.
	Ended   time.Time `json:"ended,omitzero"`
	Failure string    `json:"failure,omitempty"`
	bridge.Heartbeat

	path string
}

// newPulse is the pulse of a bridge that starts now.
func newPulse(p program.Process, ledger, id, host string, now time.Time) (pulse, error) {
	place, err := pulsePlace(p, ledger, id)
	return pulse{Host: host, Process: os.Getpid(), Started: now, path: place}, err
}

// pulsePlace is the file in which a bridge notes its pulse: beside an SQLite
// ledger, or with the user's state on this host.
func pulsePlace(p program.Process, ledger, id string) (string, error) {
	if !sqldb.IsURL(ledger) {
		return ledger + ".status.json", nil
	}
	state, err := userDir(p, "XDG_STATE_HOME", ".local", "state")
	if err != nil {
		return "", err
	}
	return filepath.Join(state, "status-"+id+".json"), nil
}

// beat notes a bridge's pulse until ctx ends. A disk that does not take it keeps
// nothing else from being done.
func (u pulse) beat(ctx context.Context, b *bridge.Bridge) {
	ticker := time.NewTicker(pulseEvery)
	defer ticker.Stop()
	for {
		u.At, u.Heartbeat = b.Now(), b.Heartbeat()
		u.write()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// during has a bridge work, and notes when it has ended, and why.
func (u pulse) during(b *bridge.Bridge, work func() error) error {
	err := work()
	u.At, u.Ended, u.Heartbeat = b.Now(), b.Now(), b.Heartbeat()
	if err != nil {
		u.Failure = err.Error()
	}
	u.write()
	return err
}

func (u pulse) write() {
	data, err := json.MarshalIndent(u, "", "  ")
	if err == nil && os.MkdirAll(filepath.Dir(u.path), 0o700) == nil {
		_ = atomicfile.Write(u.path, append(data, '\n'), 0o600) // as beat says
	}
}

// readPulse reads what the last bridge noted; nil where there is nothing to be
// read.
func readPulse(path string) (*pulse, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	var u pulse
	if err == nil {
		err = json.Unmarshal(data, &u)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &u, nil
}
