package staging

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/spool"
)

const (
	// lookFor bounds how long a fingerprint is taken; what it has by then
	// counts.
	lookFor = 20 * time.Second
	// lookWithin is after how long a disk counts as one that does not answer.
	lookWithin = 30 * time.Second
	// lookAgain is after how many times what a look took the next one at the
	// same spot begins: so looking takes at most a tenth of the time, however
	// many bundles use the data.
	lookAgain = 10
)

// looks are the looks at data in place. Those who ask for the same at about
// the same time share one: a large set takes a while, and a disk that hangs is
// to hold no more than one goroutine for each spot.
type looks struct {
	mu sync.Mutex
	at map[string]*look
}

// look is one look. The lock of looks guards until; the rest is written before
// done is closed.
type look struct {
	done  chan struct{}
	until time.Time // zero while it is under way
	seen  sight
	err   error
}

// sight is what was seen at a spot.
type sight struct {
	path  string
	print spool.Fingerprint
}

// look finds where a spot leads and takes its fingerprint. A refusal is final,
// other errors are not.
func (l *looks) look(ctx context.Context, now func() time.Time, s spot) (sight, error) {
	one := l.join(ctx, now, s)
	timer := time.NewTimer(lookWithin)
	defer timer.Stop()
	select {
	case <-one.done:
		return one.seen, one.err
	case <-timer.C:
		return sight{}, fmt.Errorf("the disk has not answered for %s", lookWithin)
	case <-ctx.Done():
		return sight{}, ctx.Err()
	}
}

// join returns the look at a spot that is under way or new enough, or begins
// one.
func (l *looks) join(ctx context.Context, now func() time.Time, s spot) *look {
	key := s.key()
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, one := range l.at {
		if !one.until.IsZero() && !now().Before(one.until) {
			delete(l.at, k)
		}
	}
	one := l.at[key]
	if one != nil {
		return one
	}
	one = &look{done: make(chan struct{})}
	if l.at == nil {
		l.at = map[string]*look{}
	}
	l.at[key] = one
	go func() { // ends when the disk answers, which may be after whoever asked has gone
		begun := now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookFor)
		defer cancel()
		one.seen, one.err = s.look(ctx)
		ended := now()
		l.mu.Lock()
		one.until = ended
		if one.err == nil {
			one.until = ended.Add(lookAgain * ended.Sub(begun))
		}
		l.mu.Unlock()
		close(one.done)
	}()
	return one
}

// key names the look: what is hidden is the same for all.
func (s spot) key() string { return fmt.Sprintf("%q %q %q %d", s.link, s.below, s.roots, s.reach) }

// look resolves the spot and looks at what is there.
func (s spot) look(ctx context.Context) (sight, error) {
	where, err := s.resolve()
	if err != nil {
		return sight{}, err
	}
	info, err := os.Stat(where)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return sight{}, refusal("neither a file nor a directory")
	}
	seen := sight{path: where}
	if err == nil {
		seen.print, err = fingerprint(ctx, where, s.reach)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return sight{}, refusal("it may not be read")
	case err != nil:
		return sight{}, fmt.Errorf("it cannot be read: %w", err)
	}
	return seen, nil
}
