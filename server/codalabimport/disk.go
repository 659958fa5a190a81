package codalabimport

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// disk lists the stores of CodaLab's own server: directories with a file or directory for each bundle, named by its
// uuid (codalab/lib/bundle_store.py: MultiDiskBundleStore).
type disk []string

// openDisk finds the directories with contents. Each of dirs is the old server's home, with partitions/*/bundles, or
// one partition, with bundles, or a directory of bundles itself.
func openDisk(dirs []string) (disk, error) {
	var all disk
	for _, dir := range dirs {
		found, err := bundlesIn(dir)
		if err != nil {
			return nil, fmt.Errorf("open store %s: %w", dir, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

func bundlesIn(dir string) ([]string, error) {
	if entries, err := os.ReadDir(filepath.Join(dir, "partitions")); err == nil {
		var all []string
		for _, e := range entries {
			path := filepath.Join(dir, "partitions", e.Name(), "bundles")
			if _, err := os.ReadDir(path); err != nil { // such as a disk that is not mounted here
				return nil, fmt.Errorf("its partition %s: %w", e.Name(), err)
			}
			all = append(all, path)
		}
		return all, nil
	}
	if _, err := os.ReadDir(filepath.Join(dir, "bundles")); err == nil {
		return []string{filepath.Join(dir, "bundles")}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if codalab.IsUUID(e.Name()) {
			return []string{dir}, nil
		}
	}
	return nil, fmt.Errorf("there are no bundles: want the old server's CODALAB_HOME, which has partitions/*/bundles, or one partition, which has bundles")
}

// pathOf returns the path of a bundle's contents; empty if there are none.
func (d disk) pathOf(uuid string) string {
	for _, dir := range d {
		path := filepath.Join(dir, uuid)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}
