package cachetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/cache"
)

// sabotage does to an entry what a cache must not. That the tests notice it is
// what it is for.
func (w *worker) sabotage(ctx context.Context, c content, path string, h cache.Holder) {
	var err error
	switch w.Sabotage {
	case sabotageRemove:
		err = os.RemoveAll(path)
	case sabotageByte:
		err = flip(filepath.Join(path, c.files()[0]))
	case sabotageRefill:
		err = refill(c, path, w.nextFill())
	case sabotagePublish:
		old, merr := c.madeBy(path)
		if err = merr; err == nil {
			err = refill(c, path, w.nextFill())
			w.get(ctx, c, "")
		}
		if err == nil {
			err = refill(c, path, old)
			w.get(ctx, c, "")
		}
	case sabotageOver:
		if err = w.cache.Unpin(ctx, h); err != nil {
			break
		}
		_, err = w.cache.Trim(ctx, cache.TrimOptions{All: true})
	}
	if err != nil {
		w.add(record{Did: didRead, Wrong: "sabotage failed: " + err.Error()})
	}
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
