package results

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"syscall"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Results within these limits are small, and take seconds to collect.
const (
	smallBytes   = 64 << 20
	smallEntries = 1000
)

// Small reports whether the results in a run directory are small. It lists at most smallEntries
// entries, and reads no file. A file counts with its whole size, including holes, because an upload
// reads them. Kept results are small if they are few, because only their listing is sent. Results
// that cannot be measured are not small.
func (c *Collector) Small(run codalab.RunBundle, runDir string, mode spool.ResultsMode) bool {
	most := int64(smallBytes)
	root, err := openClosed(runDir)
	if errors.Is(err, fs.ErrNotExist) && c.Layout != "" {
		mode = spool.ResultsKeep // as in collect
		root, err = openClosed(c.Layout.KeptDir(keptName(run.Identity())))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return true // Collect reports it immediately
	}
	if err != nil {
		return false
	}
	defer func() { _ = root.Close() }() // only read
	if mode == spool.ResultsKeep {
		most = math.MaxInt64
	}
	return measure(root, exclusionOf(run), most)
}

// measure reports whether root has at most most bytes and smallEntries entries, without excluded
// ones.
func measure(root *os.Root, x exclusion, most int64) bool {
	var sum tally
	left := smallEntries
	for dirs := []string{"."}; len(dirs) > 0; {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		entries, err := firstEntries(root, dir, left+1)
		if err != nil || len(entries) > left {
			return false
		}
		left -= len(entries)
		for _, d := range entries {
			below := path.Join(dir, d.Name())
			if x.excludes(place{dir: root, name: below, below: below}, d) {
				continue
			}
			if d.IsDir() {
				dirs = append(dirs, below)
			}
			info, err := d.Info()
			if err == nil {
				sum.add(info)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) || sum.bytes > most {
				return false
			}
		}
	}
	return true
}

// firstEntries lists at most that many entries of a directory.
func firstEntries(root *os.Root, dir string, most int) ([]fs.DirEntry, error) {
	d, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	entries, err := d.ReadDir(most)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, errors.Join(err, d.Close())
}
