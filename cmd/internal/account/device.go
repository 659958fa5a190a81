package account

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
)

// Device keeps the tokens of a program in memory, and its device token in a file. With the device token the server knows
// the program at its next start, so that others on the same host cannot keep it from signing in by wrong passwords. It
// permits nothing. Device is a client.TokenCache, and safe for concurrent use.
type Device struct {
	path string

	mu    sync.Mutex
	token client.Token
}

// DeviceOf returns the Device of a program of this process's user at a server: its file is in $XDG_STATE_HOME/PROGRAM, or
// ~/.local/state/PROGRAM. Without a home directory it returns nil, and the server does not know the program at its next start.
func DeviceOf(p program.Process, name, server string) client.TokenCache {
	state := p.Getenv("XDG_STATE_HOME")
	if home := p.Getenv("HOME"); state == "" && home != "" {
		state = filepath.Join(home, ".local", "state")
	}
	if state == "" {
		return nil
	}
	return OpenDevice(filepath.Join(state, name), server)
}

// OpenDevice returns the Device of a program at a server. Its file is in a directory of the program's own, which need not
// exist yet. Without a file that only its owner can read, the program has no device token yet.
func OpenDevice(dir, server string) *Device {
	sum := sha256.Sum256([]byte(server))
	d := &Device{path: filepath.Join(dir, "device-"+hex.EncodeToString(sum[:8]))}
	if text, err := strictmodes.ReadSecret("token", d.path); err == nil {
		d.token.Device = strings.TrimSpace(string(text))
	}
	return d
}

// Load returns the tokens.
func (d *Device) Load() client.Token {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.token
}

// Save keeps tokens. If the file cannot be written, the server does not know the program at its next start: that is no
// reason to stop.
func (d *Device) Save(t client.Token) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.Device != d.token.Device && os.MkdirAll(filepath.Dir(d.path), 0o700) == nil {
		_ = atomicfile.Write(d.path, []byte(t.Device+"\n"), 0o600)
	}
	d.token = t
}
