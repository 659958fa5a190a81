package initproc

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/subids"
)

// WrittenBy returns the host's directories that a container may write to, except for its private
// directory.
func WrittenBy(c container.Container) (dirs []string) {
	for _, b := range c.Binds {
		if info, err := os.Stat(b.Source); err == nil && info.IsDir() && !b.ReadOnly {
			dirs = append(dirs, b.Source)
		}
	}
	return dirs
}

// CheckOwners returns an error if the init's namespace has subordinate ids, and files of a directory that the
// command writes to cannot be given to them. Servers of NFS refuse that. The kernel refuses it for a file
// whose group is not in the namespace, such as one of a project's directory with that group (setgid).
func (p *Process) CheckOwners() (code int, err error) {
	if !p.Ranged {
		return 0, nil
	}
	tried := map[ownedDir]bool{}
	if p.keeper != nil {
		tried = p.keeper.owned
	}
	for _, dir := range append([]string{p.PrivateDir}, p.Written...) {
		if err := tryOwnerOnce(dir, tried); err != nil {
			return CodeOneID, container.HostErrorf("no file in %s can be given to another id: %w", dir, err)
		}
	}
	return 0, nil
}

// ownedDir are directories that differ in nothing on which CheckOwners depends.
type ownedDir struct {
	device     uint64
	gid, setID uint32
}

// tryOwnerOnce is tryOwner, once for directories of a kind.
func tryOwnerOnce(dir string, tried map[ownedDir]bool) error {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return tryOwner(dir)
	}
	kind := ownedDir{uint64(st.Dev), st.Gid, uint32(st.Mode) & unix.S_ISGID} //nolint:unconvert // their types depend on the architecture
	if tried[kind] {
		return nil
	}
	err := tryOwner(dir)
	tried[kind] = err == nil
	return err
}

// tryOwner gives a new file of a directory to another id. The file has no name where the file system
// allows that.
func tryOwner(dir string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	f := os.NewFile(uintptr(fd), dir)
	if err != nil {
		if f, err = os.CreateTemp(dir, ".owner-"); err != nil {
			return err
		}
		defer func() { _ = os.Remove(f.Name()) }() // it is empty
	}
	err = f.Chown(1, 1)
	if info, statErr := os.Stat(dir); statErr == nil && err != nil && info.Mode()&os.ModeSetgid != 0 {
		err = fmt.Errorf("%w (setgid gives its files a group that the container does not have)", err)
	}
	return errors.Join(err, f.Close())
}

// giveBack makes the user the owner of everything in the directories that the command could write to. It
// returns a note about a failure.
func (p *Process) giveBack() string { return noteOf(subids.ReclaimInside(p.Written...)) }

func noteOf(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("not all files of the command could be given to the user: %v", err)
}
