package cachetest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// auditor looks at the disk of the file server.
type auditor struct {
	dir  string
	runs int
	// most are the files of contents that were there at once when they took
	// most, and uncounted those of them of which the cache has no size.
	most      int64
	uncounted []string
}

// run looks again and again until ctx ends.
func (a *auditor) run(ctx context.Context) {
	for ctx.Err() == nil {
		a.look()
		pause(ctx, 50*time.Millisecond)
	}
}

// onDisk is a file of a content.
type onDisk struct {
	name string
	size int64
}

// look counts what is there when it begins and when it ends.
func (a *auditor) look() {
	before := contentsOnDisk(a.dir)
	sizes, _ := os.ReadDir(filepath.Join(a.dir, "sizes")) // only for what is said
	var sum int64
	var uncounted []string
	for inode, f := range contentsOnDisk(a.dir) {
		f.size = min(f.size, before[inode].size)
		sum += f.size
		if f.size > 0 && !slices.ContainsFunc(sizes, func(s fs.DirEntry) bool {
			id, _, _ := strings.Cut(s.Name(), "~")
			return strings.Contains(f.name, id)
		}) {
			uncounted = append(uncounted, fmt.Sprintf("%s: %d", strings.TrimPrefix(f.name, a.dir+"/"), f.size))
		}
	}
	if sum > a.most {
		a.most, a.uncounted = sum, uncounted
	}
	a.runs++
}

// contentsOnDisk returns all files of contents below a directory, by inode.
// What goes meanwhile may be missing.
func contentsOnDisk(dir string) map[uint64]onDisk {
	found := map[uint64]onDisk{}
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // it has gone
		}
		f, err := os.Open(name) //nolint:gosec // nobody is hostile here
		if err != nil {
			return nil //nolint:nilerr // it has gone
		}
		defer f.Close() //nolint:errcheck // only read
		head := make([]byte, len(stampWord))
		if _, err := f.ReadAt(head, 0); err != nil || string(head) != stampWord {
			return nil //nolint:nilerr // the cache's own
		}
		info, err := f.Stat()
		if err != nil {
			return nil //nolint:nilerr // it has gone
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			found[stat.Ino] = onDisk{name: name, size: info.Size()}
		}
		return nil
	})
	return found
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
