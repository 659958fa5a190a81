package inputs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/sitepath"
)

const (
	// fingerprintWithin limits the time of a fingerprint, which is partial if it takes longer.
	fingerprintWithin = 20 * time.Second
	// A fingerprint that took a time T counts for fingerprintPause × T. So the fingerprints of one
	// place take at most a tenth of the time, for any number of bundles.
	fingerprintPause = 10
)

// fingerprints takes fingerprints of data in place. Bundles that use the same data at about the
// same time share one, because a large set takes a while.
type fingerprints struct {
	calls sitepath.Calls[located]

	mu     sync.Mutex
	recent map[string]recentFingerprint
}

// located is the path of a place's data, and its fingerprint.
type located struct {
	path string // without symbolic links
	spool.Fingerprint
}

type recentFingerprint struct {
	located
	until time.Time // it counts until then
}

// locate resolves a place and takes a fingerprint of at most reach entries there, or returns a
// recent one.
func (f *fingerprints) locate(ctx context.Context, now func() time.Time, place sitepath.Place, reach int64) (located, error) {
	key := fmt.Sprintf("%q %q %q %d", place.Path, place.Below, place.Roots, reach) // all places have the same hidden files
	if data, ok := f.recall(key, now()); ok {
		return data, nil
	}
	return f.calls.Do(ctx, key, nil, func() (located, error) {
		begun := now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fingerprintWithin)
		defer cancel()
		data, err := locateNow(ctx, place, reach)
		if err != nil {
			return located{}, err
		}
		ended := now()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.recent == nil {
			f.recent = map[string]recentFingerprint{}
		}
		f.recent[key] = recentFingerprint{data, ended.Add(fingerprintPause * ended.Sub(begun))}
		return data, nil
	})
}

// recall returns a fingerprint that still counts, and removes outdated ones.
func (f *fingerprints) recall(key string, now time.Time) (located, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, r := range f.recent {
		if !now.Before(r.until) {
			delete(f.recent, k)
		}
	}
	r, ok := f.recent[key]
	return r.located, ok
}

func locateNow(ctx context.Context, place sitepath.Place, reach int64) (located, error) {
	where, err := place.Resolve()
	if err != nil {
		return located{}, err
	}
	info, err := os.Stat(where)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return located{}, sitepath.RefusedError("neither a file nor a directory")
	}
	data := located{path: where}
	if err == nil {
		data.Fingerprint, err = fingerprint(ctx, where, reach)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return located{}, sitepath.RefusedError("it may not be read")
	case err != nil:
		return located{}, fmt.Errorf("it cannot be read: %w", err)
	}
	return data, nil
}
