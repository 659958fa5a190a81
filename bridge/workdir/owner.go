package workdir

import (
	"fmt"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// Owner identifies the server, the user and the work directory of a ledger's runs. A worker with another
// owner must not use the ledger: the other server does not know the runs, another user may not report them,
// and another work directory does not have their files.
type Owner struct {
	Server string `json:"server"`
	User   string `json:"user"`
	// WorkDir is the work directory. It is not compared if the ledger is inside it.
	WorkDir string `json:"work_dir"`
}

// ownerName is the name of the file with the owner, in the directory of the ledger.
const ownerName = "owner.json"

// readOwner reads the owner of the ledger in a directory. The error wraps fs.ErrNotExist if none is recorded.
func readOwner(dir string) (Owner, error) {
	var o Owner
	if err := atomicfile.ReadJSON(filepath.Join(dir, ownerName), &o); err != nil {
		return o, fmt.Errorf("read owner: %w", err)
	}
	return o, nil
}

// write records the owner of the ledger in a directory.
func (o Owner) write(dir string) error {
	if err := atomicfile.WriteJSON(filepath.Join(dir, ownerName), o); err != nil {
		return fmt.Errorf("record owner: %w", err)
	}
	return nil
}

// sameOwner reports whether a recorded owner is the worker's.
func (d Dirs) sameOwner(recorded, of Owner) bool {
	if d.state == d.Own() {
		recorded.WorkDir = of.WorkDir // it was moved
	}
	return recorded == of
}

// LeftRunsError means that the worker of an id has left runs of another owner.
type LeftRunsError struct {
	ID   string
	Runs int
	Of   Owner
}

// Error has advice for the operator.
func (e *LeftRunsError) Error() string {
	return fmt.Sprintf("a worker of the name %q left %d runs of the user %s of %s, with the work directory %s: start it with these again, or give this one another --id",
		e.ID, e.Runs, e.Of.User, e.Of.Server, e.Of.WorkDir)
}
