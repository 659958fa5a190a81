package cache

import (
	"context"
	"errors"
)

// Key names content by what was asked for, before it is known.
type Key struct {
	// Kind sorts entries for people and for limits: "sif", "bundle".
	Kind string
	// ID is the whole request as one canonical text: equal requests have equal
	// texts, and content that may differ has a different text.
	ID string
}

// Cache is one cache directory. It may be used by several goroutines at once,
// and the directory by several processes at once.
type Cache struct {
	dir string
}

// Open makes the cache directory where there is none, and removes what fills
// that crashed more than a day ago have left in it.
func Open(dir string) (*Cache, error) {
	return &Cache{dir: dir}, nil
}

// Get returns the path of the key's content, a file or a directory, which
// nobody ever changes again. A hit costs one stat. On a miss, fill is called
// to make the content at tmp, a path that does not exist in a directory of its
// own on the cache's disk; what it made is flushed and published.
//
// In one process, fill runs once at a time for a key, whatever the number of
// callers: they all get its result. A caller whose ctx ends gets that error
// and leaves the others alone; fill's ctx ends when the last caller has left,
// and carries the values of the first one's. A failure is not remembered.
func (c *Cache) Get(ctx context.Context, key Key, fill func(ctx context.Context, tmp string) error) (path string, err error) {
	return "", errors.New("not implemented")
}
