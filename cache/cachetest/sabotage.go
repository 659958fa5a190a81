package cachetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
)

// Sabotage is what a process does to its cache once, so that a test sees that
// it is noticed.
type Sabotage string

// The sabotages. Each is done to an entry that the process has pinned, or
// beside it.
const (
	sabotageRemove   Sabotage = "remove"   // the entry is removed
	sabotageByte     Sabotage = "byte"     // one byte of it is changed
	sabotageRefill   Sabotage = "refill"   // another fill takes its place
	sabotagePublish  Sabotage = "publish"  // another fill takes its place for a while
	sabotageUnpin    Sabotage = "unpin"    // its pin is taken away, and the cache trimmed to nothing
	sabotageDie      Sabotage = "die"      // it is removed, and the process killed
	sabotageQuota    Sabotage = "quota"    // a content is made that the cache knows nothing of
	sabotagePin      Sabotage = "pin"      // there is a pin that cannot be dropped
	sabotageStuck    Sabotage = "stuck"    // a key cannot be filled any more
	sabotageLeftover Sabotage = "leftover" // there is a file that nobody sweeps
)

// sabotage does to an entry what a cache must not. That the tests notice it is
// what it is for.
func (w *worker) sabotage(ctx context.Context, c content, path string, h cache.Holder) {
	if w.Sabotage == "" {
		return
	}
	what, ctx := w.Sabotage, context.WithoutCancel(ctx)
	w.Sabotage = ""
	w.add(record{Did: didSabotage})
	var err error
	switch what {
	case sabotageRemove:
		err = os.RemoveAll(path)
	case sabotageByte:
		err = flip(filepath.Join(path, c.files()[0]))
	case sabotageRefill:
		err = refill(c, path, w.nextFill())
	case sabotagePublish:
		err = w.publishTwice(ctx, c, path)
	case sabotageUnpin:
		if err = w.cache.Unpin(ctx, h); err == nil {
			_, err = w.cache.Trim(ctx, cache.TrimOptions{All: true})
		}
	case sabotageDie:
		w.Fate.Signal = syscall.SIGKILL
		if err = os.RemoveAll(path); err == nil {
			w.signal()
		}
	case sabotageQuota:
		err = errors.Join(os.WriteFile(w.Dir+"/extra", stamp("nobody"), 0o600), os.Truncate(w.Dir+"/extra", 1<<30))
		pause(ctx, 200*time.Millisecond) // that the auditor comes by
		err = errors.Join(err, os.Remove(w.Dir+"/extra"))
	case sabotagePin:
		err = os.MkdirAll(filepath.Join(w.Dir, "pins", strings.Repeat("0", 64)+"~row-1", "d"), 0o700)
	case sabotageStuck:
		place := filepath.Dir(filepath.Dir(path))
		err = errors.Join(os.Rename(place, place+".away"), os.WriteFile(place, nil, 0o600))
	case sabotageLeftover:
		err = os.WriteFile(filepath.Join(w.Dir, "retired", "note"), nil, 0o600)
	}
	if err != nil {
		w.add(record{Did: didRead, Wrong: "sabotage failed: " + err.Error()})
	}
}

// publishTwice puts the content of another fill in the place of one, and takes
// it away again.
func (w *worker) publishTwice(ctx context.Context, c content, path string) error {
	old, err := c.madeBy(path)
	if err != nil {
		return err
	}
	for _, fill := range []string{w.nextFill(), old} {
		if err := refill(c, path, fill); err != nil {
			return err
		}
		w.add(record{Did: didFilled, Key: c.n, Fill: fill})
		w.get(ctx, c, "")
	}
	return nil
}

// flip changes a byte in the middle of a file.
func flip(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("flip a byte: %w", err)
	}
	defer f.Close() //nolint:errcheck // what is not changed is noticed
	var b [1]byte
	if _, err := f.ReadAt(b[:], 2*stampLen); err != nil {
		return fmt.Errorf("flip a byte: %w", err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], 2*stampLen); err != nil {
		return fmt.Errorf("flip a byte: %w", err)
	}
	return nil
}

// refill makes the content of another fill in the place of one.
func refill(c content, path, fill string) error {
	_, err := c.make(path, fill, func() error { return nil })
	return err
}
