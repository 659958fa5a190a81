package caches

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/cache"
)

// Vanished counts the entries of which something other than the cache has removed files, and returns the path of one. A
// purger of the site does that, which goes by the age of each file. mostFiles bounds the files to look at; contents beyond
// it are not judged. Vanished compares no digests: cl-bridge cache verify does.
func Vanished(ctx context.Context, entries []cache.Entry, mostFiles int64) (n int, one string, err error) {
	for _, e := range entries {
		if e.Retired || e.Files > mostFiles {
			continue
		}
		files, there, err := count(ctx, e.Path)
		switch {
		case errors.Is(err, fs.ErrPermission):
			continue // another user's
		case err != nil:
			return n, one, err
		case !there || files < e.Files:
			n++
			one = e.Path
		}
		mostFiles -= files
	}
	return n, one, nil
}

// count counts the regular files of a content, and reports whether there is one.
func count(ctx context.Context, path string) (files int64, there bool, err error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	err = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		if err = errors.Join(err, ctx.Err()); err == nil && e.Type().IsRegular() {
			files++
		}
		return err
	})
	return files, true, err
}
