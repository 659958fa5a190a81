// Package caches lists, counts and verifies the entries of a bridge's cache, for `cl-bridge cache`.
package caches

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

// Entries returns the entries of a cache and its retired contents, those last used last.
func Entries(ctx context.Context, c *cache.Cache) ([]cache.Entry, error) {
	entries, err := c.Entries(ctx)
	if err != nil {
		return nil, err
	}
	retired, err := c.Retired()
	if err != nil {
		return nil, err
	}
	entries = append(entries, retired...)
	slices.SortFunc(entries, func(a, b cache.Entry) int { return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(a.Hash, b.Hash)) })
	return entries, nil
}

// Usage is the size of a cache, by kind of content and by owner.
type Usage struct {
	cache.Usage
	Kinds map[string]int64 `json:"kinds"`
	// Pinned counts the contents with a pin. Leaving counts contents that are out of use and soon removed, and
	// those that are being made. Both are bytes.
	Pinned  int64 `json:"pinned"`
	Leaving int64 `json:"leaving"`
	// Size is the bound of the cache, 0 for none.
	Size int64 `json:"size,omitempty"`
	Free int64 `json:"disk_free"`
}

// Measure returns the usage of a cache in a directory. size is its bound.
func Measure(ctx context.Context, c *cache.Cache, dir string, size int64) (Usage, error) {
	u := Usage{Kinds: map[string]int64{}, Size: size}
	var err error
	if u.Usage, err = c.Usage(); err != nil {
		return u, err
	}
	entries, err := Entries(ctx, c)
	if err != nil {
		return u, err
	}
	u.Leaving = u.Bytes
	for _, e := range entries {
		if len(e.Pins) > 0 {
			u.Pinned += e.Size
		}
		if !e.Retired {
			u.Kinds[e.Kind] += e.Size
			u.Leaving -= e.Size
		}
	}
	u.Leaving = max(u.Leaving, 0)
	disk, err := diskspace.Of(dir)
	u.Free = disk.Free
	return u, err
}

// ErrAmbiguous means that a word names several entries.
var ErrAmbiguous = errors.New("several entries")

// Find returns the one entry that a word names: the beginning of its hash, or a part of
// its name. Its error wraps ErrAmbiguous where there are several.
func Find(entries []cache.Entry, word string) (cache.Entry, error) {
	var found []cache.Entry
	for _, e := range entries {
		if strings.HasPrefix(e.Hash, word) || strings.Contains(e.ID, word) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 0:
		return cache.Entry{}, fmt.Errorf("no entry is called %q: cl-bridge cache ls lists them", word)
	case 1:
		return found[0], nil
	}
	return cache.Entry{}, fmt.Errorf("%q names %w, %s and %s among them", word, ErrAmbiguous, found[0].Key, found[1].Key)
}

// Verified is an entry that [Verify] has read.
type Verified struct {
	cache.Entry
	Damaged bool `json:"damaged"`
	// Wrong is the fault of the entry, such as that only its owner can read it; empty for none.
	Wrong string `json:"wrong,omitempty"`
}

// Verify reads all entries and takes damaged ones out of use. Its error counts the entries that were damaged or
// could not be read; the list is complete all the same.
func Verify(ctx context.Context, c *cache.Cache) ([]Verified, error) {
	list := []Verified{}
	damaged, unread := 0, 0
	err := c.Verify(ctx, func(e cache.Entry, wrong error) {
		v := Verified{Entry: e, Damaged: errors.Is(wrong, cache.ErrDamaged)}
		switch {
		case v.Damaged:
			damaged++
			v.Wrong = wrong.Error()
		case errors.Is(wrong, fs.ErrPermission):
			v.Wrong = "private: only its owner can read it"
		case wrong != nil:
			unread++
			v.Wrong = wrong.Error()
		}
		list = append(list, v)
	})
	switch {
	case err != nil:
		return nil, err
	case damaged > 0:
		err = fmt.Errorf("%d of %d entries are damaged; they are made anew when they are wanted", damaged, len(list))
	case unread > 0:
		err = fmt.Errorf("%d of %d entries could not be read", unread, len(list))
	}
	return list, err
}
