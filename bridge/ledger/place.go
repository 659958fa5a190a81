package ledger

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// ErrNetwork means that an SQLite file would be on a network file system. Its locks may hold on one host
// only there, and its file of shared memory never works between hosts (https://www.sqlite.org/wal.html),
// so a command on another host could damage the ledger.
var ErrNetwork = errors.New("SQLite's files are not safe on a disk that other hosts use too")

// LocalPlace returns a path for this user's ledger on this host's own disk. It is for users whose home is
// on a network file system.
func LocalPlace() string {
	name := strconv.Itoa(os.Getuid())
	if me, err := user.Current(); err == nil {
		name = me.Username
	}
	return filepath.Join("/var/tmp", "cl-bridge-"+name, "ledger.db")
}

// Name returns a ledger's place for people: the absolute path of a file, or a URL without its password.
func Name(where string) string {
	if sqldb.IsURL(where) {
		return sqldb.Name(where)
	}
	if path, err := filepath.Abs(where); err == nil {
		return path
	}
	return where
}

// CheckPlace returns an error that wraps ErrNetwork, and names better places, if where is the
// path of an SQLite file on a network file system. The file and its directory need not exist.
func CheckPlace(where string) error {
	if sqldb.IsURL(where) {
		return nil
	}
	path, err := filepath.Abs(where)
	if err != nil {
		return fmt.Errorf("find ledger: %w", err)
	}
	network := diskspace.Network(diskspace.Nearest(path))
	if network == "" {
		return nil
	}
	return fmt.Errorf("ledger %s is on %s: %w; set ledger = %q, on a disk of this host, or a postgres://… in the configuration, and move a ledger that is there already while no bridge runs",
		where, network, ErrNetwork, LocalPlace())
}

// MakeDir makes the directory of a ledger's file, for this user alone. It refuses the directory of
// another user, who could put files there.
func MakeDir(where string) error {
	if sqldb.IsURL(where) {
		return nil
	}
	if err := CheckPlace(where); err != nil {
		return err
	}
	dir := filepath.Dir(where)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the ledger's directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("make the ledger's directory: %w", err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("make the ledger's directory: the directory %s belongs to another user", dir)
	}
	return nil
}

// Touch marks the files of a ledger as used now. Hosts remove files from /var/tmp that have not
// changed for a month (tmpfiles.d(5)), and a bridge without bundles writes nothing.
func Touch(where string, now time.Time) {
	if sqldb.IsURL(where) {
		return
	}
	for _, side := range []string{"", "-wal", "-shm", ".lock"} {
		_ = os.Chtimes(where+side, now, now) // a failure does no harm: the next call repeats it
	}
}
