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
	// fingerprintWithin is how long a fingerprint may take. What it has by then counts.
	fingerprintWithin = 20 * time.Second
	// A fingerprint that took a time T counts for fingerprintPause × T. So those of one place
	// take at most a tenth of the time, however many bundles use the data.
	fingerprintPause = 10
)

// fingerprints are those of data in place. Bundles that use the same data at about the same
// time share one, as it takes a while for a large set.
type fingerprints struct {
	calls sitepath.Calls[located]

	mu     sync.Mutex
	recent map[string]recentFingerprint
}

// located is where the data of a place is, and its fingerprint.
type located struct {
	path string // without symbolic links
	spool.Fingerprint
}

type recentFingerprint struct {
	located
	until time.Time // when it counts no more
}

// locate resolves a place and takes a fingerprint of at most reach entries there, or returns
// a recent one.
func (f *fingerprints) locate(ctx context.Context, now func() time.Time, place sitepath.Place, reach int64) (located, error) {
	key := fmt.Sprintf("%q %q %q %d", place.Path, place.Below, place.Roots, reach) // what is hidden is the same for all
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

// recall returns a fingerprint that still counts, and forgets those that do not.
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
