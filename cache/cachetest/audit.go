package cachetest

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// auditor measures the contents on the file server's disk.
type auditor struct {
	dir        string
	runs, most int64 // most is the largest number of bytes of contents at one time
}

// watch measures repeatedly until ctx ends. It counts the files that it finds at the begin and at the
// end of a measurement, because those existed at the same time.
func (a *auditor) watch(ctx context.Context) {
	for ctx.Err() == nil {
		before, sum := contentsOnDisk(a.dir), int64(0)
		for inode, size := range contentsOnDisk(a.dir) {
			sum += min(size, before[inode])
		}
		a.most = max(a.most, sum)
		a.runs++
		_ = pause.For(ctx, 50*time.Millisecond)
	}
}

// contentsOnDisk returns the sizes of all files of contents below a directory, by inode. Files that
// are removed during the call may be missing.
func contentsOnDisk(dir string) map[uint64]int64 {
	found := map[uint64]int64{}
	for _, name := range names(dir) {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		head := make([]byte, len(stampWord))
		_, err = f.ReadAt(head, 0)
		info, statErr := f.Stat()
		if err == nil && statErr == nil && string(head) == stampWord {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				found[stat.Ino] = info.Size()
			}
		}
		_ = f.Close() // only read
	}
	return found
}

// names returns the paths of all files and links below a directory.
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
