package status

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// heartbeatEvery is the pause between two heartbeats.
const heartbeatEvery = 10 * time.Second

// Heartbeat is what a bridge last wrote about itself.
type Heartbeat struct {
	Host    string    `json:"host"`
	Process int       `json:"process"`
	Started time.Time `json:"started"`
	At      time.Time `json:"at"`
	// Ended is when it ended; Failure is why, where that was not by a signal.
	Ended   time.Time `json:"ended,omitzero"`
	Failure string    `json:"failure,omitempty"`
	bridge.Heartbeat
}

// HeartbeatFile returns the file of a bridge's heartbeat: beside an SQLite ledger, or in
// the directory of the user's state for a ledger in a database.
func HeartbeatFile(ledger, bridge string, stateDir func() (string, error)) (string, error) {
	if !sqldb.IsURL(ledger) {
		return ledger + ".status.json", nil
	}
	dir, err := stateDir()
	return filepath.Join(dir, "status-"+bridge+".json"), err
}

// ReadHeartbeat reads a heartbeat. Its error wraps fs.ErrNotExist where there is none.
func ReadHeartbeat(path string) (Heartbeat, error) {
	var h Heartbeat
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &h)
	}
	if err != nil {
		return h, fmt.Errorf("read %s: %w", path, err)
	}
	return h, nil
}

// Write writes the heartbeat to a file. It reports no error: a full disk must not stop
// the bridge.
func (h Heartbeat) Write(path string) {
	data, err := json.MarshalIndent(h, "", "  ")
	if err == nil && os.MkdirAll(filepath.Dir(path), 0o700) == nil {
		_ = atomicfile.Write(path, append(data, '\n'), 0o600)
	}
}

// Recorder writes the heartbeats of a bridge.
type Recorder struct {
	Bridge *bridge.Bridge
	// Path is the [HeartbeatFile].
	Path, Host string
	Process    int
	Started    time.Time
}

// Run writes a heartbeat now and every ten seconds, until ctx ends.
func (r Recorder) Run(ctx context.Context) {
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	for {
		r.heartbeat().Write(r.Path)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// End writes the last heartbeat, with the error by which the bridge ended.
func (r Recorder) End(err error) {
	h := r.heartbeat()
	h.Ended = h.At
	if err != nil {
		h.Failure = err.Error()
	}
	h.Write(r.Path)
}

func (r Recorder) heartbeat() Heartbeat {
	return Heartbeat{Host: r.Host, Process: r.Process, Started: r.Started, At: r.Bridge.Now(), Heartbeat: r.Bridge.Heartbeat()}
}
