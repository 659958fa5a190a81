package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// owner identifies the server, the user and the work directory of a ledger's runs. A worker with another
// owner must not use the ledger: the other server does not know the runs, another user may not report them,
// and another work directory does not have their files.
type owner struct {
	Server string `json:"server"`
	User   string `json:"user"`
	// WorkDir is the work directory. It is not compared if the ledger is inside it.
	WorkDir string `json:"work_dir"`
}

// ownerName is the name of the file with the owner, in the directory of the ledger.
const ownerName = "owner.json"

// readOwner reads the owner of the ledger in a directory. The error wraps fs.ErrNotExist if none is recorded.
func readOwner(dir string) (owner, error) {
	var o owner
	text, err := os.ReadFile(filepath.Join(dir, ownerName))
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		return o, fmt.Errorf("read %s: %w", filepath.Join(dir, ownerName), err)
	}
	return o, nil
}

// write records the owner of the ledger in a directory.
func (o owner) write(dir string) error {
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return fmt.Errorf("record owner: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(dir, ownerName), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("record owner: %w", err)
	}
	return nil
}

// sameOwner reports whether a recorded owner is the worker's.
func (p place) sameOwner(recorded, of owner) bool {
	if p.state == p.own() {
		recorded.WorkDir = of.WorkDir // it was moved
	}
	return recorded == of
}
