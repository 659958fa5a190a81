package cachetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// sabotage damages a cache once. A test with it proves that the storm notices the damage.
type sabotage string

// The sabotages. A process does each to an entry that it has pinned, or to other files of the
// cache.
const (
	sabotageRemove   sabotage = "remove"   // remove the entry
	sabotageByte     sabotage = "byte"     // change one byte of it
	sabotageRefill   sabotage = "refill"   // replace it with another fill's content
	sabotagePublish  sabotage = "publish"  // replace it for a while
	sabotageDie      sabotage = "die"      // remove it, and kill the process
	sabotageQuota    sabotage = "quota"    // make a content that the cache does not know
	sabotagePin      sabotage = "pin"      // make a pin that cannot be dropped
	sabotageStuck    sabotage = "stuck"    // make a key that cannot be filled
	sabotageLeftover sabotage = "leftover" // make a file that no sweep removes
)

// sabotage damages the cache as w.Sabotage orders.
func (w *worker) sabotage(ctx context.Context, c content, path string) {
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
		name := c.files()[0]
		text := c.text(name, w.nextFill())
		text[2*stampLen] ^= 1
		_, err = makeFile(filepath.Join(path, name), text, func() error { return nil })
	case sabotageRefill:
		_, err = c.make(path, w.nextFill(), func() error { return nil })
	case sabotagePublish:
		err = w.publishTwice(ctx, c, path)
	case sabotageDie:
		w.Fate.Signal = syscall.SIGKILL
		if err = os.RemoveAll(path); err == nil {
			w.signal()
		}
	case sabotageQuota:
		err = errors.Join(os.WriteFile(w.Dir+"/extra", stamp("nobody"), 0o600), os.Truncate(w.Dir+"/extra", 1<<30))
		_ = pause.For(ctx, 200*time.Millisecond) // so that the auditor sees it
		err = errors.Join(err, os.Remove(w.Dir+"/extra"))
	case sabotagePin:
		err = os.MkdirAll(filepath.Join(w.Dir, "pins", strings.Repeat("0", 64)+"~row-1", "d"), 0o700)
	case sabotageStuck:
		place := filepath.Dir(filepath.Dir(path))
		err = errors.Join(os.Rename(place, place+".moved"), os.WriteFile(place, nil, 0o600))
	case sabotageLeftover:
		err = os.WriteFile(filepath.Join(w.Dir, "retired", "note"), nil, 0o600)
	}
	if err != nil {
		w.add(record{Did: didRead, Wrong: "sabotage failed: " + err.Error()})
	}
}

// publishTwice replaces a content with another fill's, and restores it.
func (w *worker) publishTwice(ctx context.Context, c content, path string) error {
	old, err := c.madeBy(path)
	if err != nil {
		return err
	}
	for _, fill := range []string{w.nextFill(), old} {
		if _, err := c.make(path, fill, func() error { return nil }); err != nil {
			return err
		}
		w.add(record{Did: didFilled, Key: c.n, Fill: fill})
		w.get(ctx, c, "")
	}
	return nil
}
