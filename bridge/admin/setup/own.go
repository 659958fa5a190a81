package setup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
)

// makeOwn makes the shared directory, where only this account can write and which nobody else can replace. If dir is open
// to others, such as a directory of a whole lab, the bridge gets a new one in it.
func (s *session) makeOwn(dir string) (string, error) {
	account, err := strictmodes.Current().Trust(s.Trust...)
	if err != nil {
		return "", &UsageError{fmt.Errorf("--trust: %w", err)}
	}
	if open, ok := errors.AsType[*strictmodes.Error](account.Check(dir)); ok && open.At == dir {
		dir = filepath.Join(dir, "cl-slurm-"+doctor.LocalUser())
		s.say("%s: so the bridge gets a directory of its own there, %s\n", open.Found, dir)
	}
	_, before := os.Lstat(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the shared directory: %w", err)
	}
	err = account.Check(dir)
	if err == nil {
		return dir, nil
	}
	if before != nil {
		_ = os.Remove(dir) // it was made above, and is empty
	}
	if open, ok := errors.AsType[*strictmodes.Error](err); ok && open.Who != "" {
		err = fmt.Errorf("%w; or --trust %s, if they may act as you", err, open.Who)
	}
	return "", fmt.Errorf("use %s as the shared directory: %w", dir, err)
}
