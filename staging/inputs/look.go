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
	// lookFor is how long a fingerprint may take. What it has by then counts.
	lookFor = 20 * time.Second
	// lookAgain is after how many times the length of a look the next one at the same place
	// begins: so looking takes at most a tenth of the time, however many bundles use the
	// data.
	lookAgain = 10
)

// looks are the looks at data in place. Bundles that ask for the same at about the same
// time share one, as a look at a large set takes a while.
type looks struct {
	calls sitepath.Calls[sight]

	mu     sync.Mutex
	recent map[string]recentLook
}

// sight is what was seen at a place.
type sight struct {
	path string // without symbolic links
	spool.Fingerprint
}

type recentLook struct {
	sight
	until time.Time // when it counts no more
}

// look resolves a place and takes a fingerprint of at most reach entries there.
func (l *looks) look(ctx context.Context, now func() time.Time, place sitepath.Place, reach int64) (sight, error) {
	key := fmt.Sprintf("%q %q %q %d", place.Path, place.Below, place.Roots, reach) // what is hidden is the same for all
	if seen, ok := l.recall(key, now()); ok {
		return seen, nil
	}
	return l.calls.Do(ctx, key, nil, func() (sight, error) {
		begun := now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookFor)
		defer cancel()
		seen, err := lookAt(ctx, place, reach)
		if err != nil {
			return sight{}, err
		}
		ended := now()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.recent == nil {
			l.recent = map[string]recentLook{}
		}
		l.recent[key] = recentLook{seen, ended.Add(lookAgain * ended.Sub(begun))}
		return seen, nil
	})
}

// recall returns a look that still counts, and forgets those that do not.
func (l *looks) recall(key string, now time.Time) (sight, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, look := range l.recent {
		if !now.Before(look.until) {
			delete(l.recent, k)
		}
	}
	look, ok := l.recent[key]
	return look.sight, ok
}

func lookAt(ctx context.Context, place sitepath.Place, reach int64) (sight, error) {
	where, err := place.Resolve()
	if err != nil {
		return sight{}, err
	}
	info, err := os.Stat(where)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return sight{}, sitepath.Refusal("neither a file nor a directory")
	}
	seen := sight{path: where}
	if err == nil {
		seen.Fingerprint, err = fingerprint(ctx, where, reach)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return sight{}, sitepath.Refusal("it may not be read")
	case err != nil:
		return sight{}, fmt.Errorf("it cannot be read: %w", err)
	}
	return seen, nil
}
