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

// sabotage is what a process does to its cache once, so that a test sees that
// it is noticed.
type sabotage string

// The sabotages. Each is done to an entry that the process has pinned, or
// beside it.
const (
	sabotageRemove   sabotage = "remove"   // the entry is removed
	sabotageByte     sabotage = "byte"     // one byte of it is changed
	sabotageRefill   sabotage = "refill"   // another fill takes its place
	sabotagePublish  sabotage = "publish"  // another fill takes its place for a while
	sabotageDie      sabotage = "die"      // it is removed, and the process killed
	sabotageQuota    sabotage = "quota"    // a content is made that the cache knows nothing of
	sabotagePin      sabotage = "pin"      // there is a pin that cannot be dropped
	sabotageStuck    sabotage = "stuck"    // a key cannot be filled any more
	sabotageLeftover sabotage = "leftover" // there is a file that nobody sweeps
)

// sabotage does to an entry what a cache must not.
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
		_ = pause.For(ctx, 200*time.Millisecond) // that the auditor comes by
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

// publishTwice puts the content of another fill in the place of one, and takes
// it away again.
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
