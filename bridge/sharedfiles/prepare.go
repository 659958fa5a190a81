package sharedfiles

import (
	"errors"
	"fmt"
	"os"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/internal/linkonce"
	"github.com/cl-slurm/cl-slurm/spool"
)

// OtherDisk is the advice about a shared directory on a disk that is unfit (linkonce.ErrUnfit).
const OtherDisk = "name a directory on a disk with atomic link and rename, such as NFS, Lustre or GPFS"

// Prepare makes the directories of the shared disk before a bridge starts, tries there that attempts can be
// begun, and checks that the server's store can be read where one is configured. rows is the number of rows in
// the ledger.
//
// Where the ledger has rows, the directories must exist: else the shared disk is not mounted.
func Prepare(c config.Config, layout spool.Layout, rows int) error {
	for _, dir := range layout.Directories() {
		if _, err := os.Stat(dir); err != nil && rows > 0 {
			return fmt.Errorf("the shared directory does not hold the files of the %d bundles in the ledger: is its disk mounted? (%w)", rows, err)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("prepare shared directory: %w", err)
		}
	}
	// A disk that is full, or fails for now, is waited for.
	if err := (spool.Disk{Layout: layout}).Try(); errors.Is(err, linkonce.ErrUnfit) {
		return fmt.Errorf("prepare shared directory: %w; %s", err, OtherDisk)
	}
	if c.ServerStore == "" {
		return nil
	}
	store, err := os.Open(c.ServerStore)
	if err == nil {
		err = store.Close()
	}
	if err != nil {
		return fmt.Errorf("open server_store: %w", err)
	}
	return nil
}
