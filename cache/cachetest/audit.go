package cachetest

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// auditor looks at the disk of the file server.
type auditor struct {
	dir  string
	most int64 // bytes of contents that were there at once
	runs int
}

// run looks again and again until ctx ends.
func (a *auditor) run(ctx context.Context) {
	for ctx.Err() == nil {
		a.look()
		pause(ctx, 50*time.Millisecond)
	}
}

// look counts what is there when it begins and when it ends.
func (a *auditor) look() {
	before := onDisk(a.dir)
	var sum int64
	for inode, size := range onDisk(a.dir) {
		sum += min(size, before[inode])
	}
	a.most = max(a.most, sum)
	a.runs++
}

// onDisk returns the sizes of all files of contents below a directory, by
// inode. What goes meanwhile may be missing.
func onDisk(dir string) map[uint64]int64 {
	sizes := map[uint64]int64{}
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		f, err := os.Open(name) //nolint:gosec // nobody is hostile here
		if err != nil {
			return nil
		}
		defer f.Close() //nolint:errcheck // only read
		info, err := f.Stat()
		if err != nil {
			return nil
		}
		head := make([]byte, len(stampWord))
		if _, err := f.ReadAt(head, 0); err != nil || string(head) != stampWord {
			return nil
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			sizes[stat.Ino] = info.Size()
		}
		return nil
	})
	return sizes
}

// names are the paths of all files and links below a directory.
func names(dir string) []string {
	var all []string
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, strings.TrimPrefix(name, dir+"/"))
		}
		return nil
	})
	return all
}
