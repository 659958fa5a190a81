package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// Names in the cache directory.
const (
	contentName = "content"
	keyName     = "key.json"
	fillPrefix  = ".fill-"
)

// Key names content by what was asked for, before it is known.
type Key struct {
	// Kind sorts entries for people and for limits: "sif", "bundle". It is
	// made of lower-case letters, digits and dashes.
	Kind string `json:"kind"`
	// ID is the whole request as one canonical text: equal requests have equal
	// texts, and content that may differ has a different text.
	ID string `json:"id"`
}

// Cache is one cache directory. It may be used by several goroutines at once,
// and the directory by several processes at once.
type Cache struct {
	dir string

	mu      sync.Mutex
	flights map[string]*flight // by the path of the content
}

// Open makes the cache directory where there is none, and removes what fills
// that crashed more than a day ago have left in it.
func Open(dir string) (*Cache, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("open cache %s: %w", dir, err)
	}
	if err := sweep(dir); err != nil {
		return nil, fmt.Errorf("sweep cache %s: %w", dir, err)
	}
	return &Cache{dir: dir, flights: map[string]*flight{}}, nil
}

// Get returns the path of the key's content, a file or a directory, which
// nobody ever changes again. A hit costs one stat. On a miss, fill is called
// to make the content at tmp, a path that does not exist in a directory of its
// own on the cache's disk; what it made is flushed and published.
//
// In one process, fill runs once at a time for a key, whatever the number of
// callers: they all get its result. A caller whose ctx ends gets that error
// and leaves the others alone; fill's ctx ends when the last caller has left,
// and carries the values of the first one's. fill's error is returned as it
// is, and not remembered.
func (c *Cache) Get(ctx context.Context, key Key, fill func(ctx context.Context, tmp string) error) (path string, err error) {
	if err := key.check(); err != nil {
		return "", err
	}
	path = filepath.Join(c.entry(key), contentName)
	for {
		if _, err := os.Lstat(path); err == nil {
			return path, nil
		}
		f := c.join(ctx, path, func(ctx context.Context) error { return c.make(ctx, key, fill) })
		select {
		case <-ctx.Done():
			c.leave(path, f)
			return "", fmt.Errorf("get %s from the cache: %w", key, ctx.Err())
		case <-f.done:
		}
		switch {
		case f.abandoned: // by others, before this caller came
		case f.err != nil:
			return "", f.err
		default:
			return path, nil
		}
	}
}

// String gives the key for messages.
func (k Key) String() string { return fmt.Sprintf("%s %q", k.Kind, k.ID) }

func (k Key) check() error {
	if k.Kind == "" || strings.Trim(k.Kind, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("cache: %q is not a kind", k.Kind)
	}
	return nil
}

// entry is the directory of a key.
func (c *Cache) entry(key Key) string {
	sum := sha256.Sum256([]byte(key.Kind + "\x00" + key.ID))
	name := hex.EncodeToString(sum[:])
	return filepath.Join(c.dir, key.Kind, name[:2], name)
}

// make fills and publishes an entry.
func (c *Cache) make(ctx context.Context, key Key, fill func(ctx context.Context, tmp string) error) (err error) {
	entry := c.entry(key)
	parent := filepath.Dir(entry)
	if err := makeDir(parent); err != nil {
		return fmt.Errorf("make cache entry of %s: %w", key, err)
	}
	wreck, err := os.MkdirTemp(parent, fillPrefix)
	if err != nil {
		return fmt.Errorf("make cache entry of %s: %w", key, err)
	}
	defer func() {
		if wreck != "" {
			err = errors.Join(err, filetree.Remove(wreck))
		}
	}()
	if err := guard(ctx, fill, filepath.Join(wreck, contentName)); err != nil {
		return err
	}
	if err := seal(wreck, key); err != nil {
		return fmt.Errorf("make cache entry of %s: %w", key, err)
	}
	err = os.Rename(wreck, entry)
	switch {
	case err == nil:
		wreck = ""
		return atomicfile.SyncDir(parent)
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EEXIST):
		// Another process was first.
		if _, err := os.Lstat(filepath.Join(entry, contentName)); err != nil {
			return fmt.Errorf("cache entry %s of %s is damaged, remove it: %w", entry, key, err)
		}
		return nil
	default:
		return fmt.Errorf("publish cache entry of %s: %w", key, err)
	}
}

// guard calls fill. One that panics fails, so that what a hostile input brings
// about does not end the whole program.
func guard(ctx context.Context, fill func(ctx context.Context, tmp string) error, tmp string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return fill(ctx, tmp)
}

// seal completes an entry and flushes all of it.
func seal(dir string, key Key) error {
	content := filepath.Join(dir, contentName)
	if _, err := os.Lstat(content); err != nil {
		return fmt.Errorf("nothing was made: %w", err)
	}
	text, err := json.MarshalIndent(key, "", "  ")
	if err != nil {
		return fmt.Errorf("write its key: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(dir, keyName), append(text, '\n'), 0o600); err != nil {
		return err
	}
	if err := syncTree(content); err != nil {
		return err
	}
	return atomicfile.SyncDir(dir)
}
