package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// sizeOf is the size of a content, finished or reserved. It is stored as the name of an empty file.
type sizeOf struct {
	hash, token string
	bytes       int64
	owner       string
	name        string // of the file
}

func (s sizeOf) id() string { return s.hash + "." + s.token }

func newSize(hash, token string, bytes int64, owner string) sizeOf {
	s := sizeOf{hash: hash, token: token, bytes: bytes, owner: ownerOf(ownerName(owner))}
	s.name = strings.Join([]string{s.id(), strconv.FormatInt(bytes, 10), ownerName(owner)}, "~")
	return s
}

func parseSize(name string) (sizeOf, error) {
	parts := strings.SplitN(name, "~", 3)
	if len(parts) != 3 {
		return sizeOf{}, errors.New("not a size")
	}
	hash, token, err := splitID(parts[0])
	if err != nil {
		return sizeOf{}, err
	}
	bytes, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || bytes < 0 {
		return sizeOf{}, errors.New("not a size")
	}
	return sizeOf{hash: hash, token: token, bytes: bytes, owner: ownerOf(parts[2]), name: name}, nil
}

// sizes lists the sizes that count against the quotas, as the file server has them now.
func (c *Cache) sizes() ([]sizeOf, error) {
	names, err := c.names(c.place(sizesPlace))
	if err != nil {
		return nil, err
	}
	sizes := make([]sizeOf, 0, len(names))
	for _, name := range names {
		if s, err := parseSize(name); err == nil {
			sizes = append(sizes, s)
		}
	}
	return sizes, nil
}

// sizesOf lists the sizes of one content.
func (c *Cache) sizesOf(id string) ([]sizeOf, error) {
	sizes, err := c.sizes()
	return slices.DeleteFunc(sizes, func(s sizeOf) bool { return s.id() != id }), err
}

// dropSizesOf removes the sizes of one content.
func (c *Cache) dropSizesOf(id string) error {
	sizes, err := c.sizesOf(id)
	if err != nil {
		return err
	}
	return c.dropSizes(sizes)
}

func (c *Cache) dropSizes(sizes []sizeOf) error {
	for _, s := range sizes {
		if err := remove(c.sizePath(s.name)); err != nil {
			return fmt.Errorf("remove the size of %s: %w", s.id(), err)
		}
	}
	return nil
}

// discard removes a content's directory and its sizes.
func (c *Cache) discard(dir string, sizes []sizeOf) error {
	if err := removeTree(dir); err != nil {
		return err
	}
	return c.dropSizes(sizes)
}

func (c *Cache) sizePath(name string) string { return filepath.Join(c.place(sizesPlace), name) }

// Usage counts a cache's contents, in bytes as the quotas count them. It includes unfinished
// contents whose size was known beforehand, and retired contents that are not removed yet.
type Usage struct {
	Bytes   int64            `json:"bytes"`
	Entries int              `json:"entries"`
	Owners  map[string]int64 `json:"owners"`
}

// Usage counts the cache's contents from a listing of names. It costs a few microseconds for each
// entry.
func (c *Cache) Usage() (Usage, error) {
	sizes, err := c.sizes()
	if err != nil {
		return Usage{}, fmt.Errorf("count the cache's contents: %w", err)
	}
	return usage(sizes), nil
}

// usage adds sizes up. A content with two sizes is about to change from one to the other, and
// counts as the larger.
func usage(sizes []sizeOf) Usage {
	largest := make(map[string]sizeOf, len(sizes))
	for _, s := range sizes {
		if old, ok := largest[s.id()]; !ok || old.bytes < s.bytes {
			largest[s.id()] = s
		}
	}
	u := Usage{Entries: len(largest), Owners: map[string]int64{}}
	for _, s := range largest {
		u.Bytes += s.bytes
		u.Owners[s.owner] += s.bytes
	}
	return u
}

// reserve counts a content of this size against the limits, if there is room. Each process writes
// its size down before it adds up all sizes. So the last of several to write sees all others, and
// together they exceed a limit by at most one content. They may also all see each other, and all
// step back; then they try again. If there is no room, reserve trims, and finds room when a retired
// content has settled. It returns ErrFull if that takes too long.
func (c *Cache) reserve(ctx context.Context, e entryNames, token string, bytes int64, owner string) (sizeOf, error) {
	s := newSize(e.hash, token, bytes, owner)
	limit := time.NewTimer(3*c.o.Settle + 5*time.Second) // one Settle until a content may be retired, one until it is removed
	defer limit.Stop()
	var trouble error
	for {
		full, err := c.claim(s)
		if err != nil {
			return s, errors.Join(err, remove(c.sizePath(s.name)))
		}
		if full == nil {
			return s, nil
		}
		if err := remove(c.sizePath(s.name)); err != nil {
			return s, fmt.Errorf("make room: %w", err)
		}
		select {
		case <-limit.C:
			return s, errors.Join(full, trouble)
		default:
		}
		t, err := c.trim(ctx, TrimOptions{}, s)
		if err != nil && ctx.Err() != nil {
			return s, err
		}
		trouble = err // the failed entries may not be those that make room
		if t.Removed > 0 {
			continue
		}
		again := c.o.Settle/8 + time.Duration(rand.Int64N(int64(200*time.Millisecond))) //nolint:gosec // so that two processes do not retry in step
		if err := pause.For(ctx, again); err != nil {
			return s, fmt.Errorf("wait for room in the cache: %w", err)
		}
	}
}

// claim writes a size down, and returns the limit that it exceeds, if any.
func (c *Cache) claim(s sizeOf) (full, err error) {
	if err := c.write(s); err != nil {
		return nil, err
	}
	limit := c.size.Load()
	if limit == 0 && c.o.Quota == nil {
		return nil, nil
	}
	others, err := c.sizes()
	if err != nil {
		return nil, err
	}
	used := usage(slices.DeleteFunc(others, func(other sizeOf) bool { return other.id() == s.id() }))
	if limit > 0 && used.Bytes > limit {
		return fmt.Errorf("%w: %d of %d bytes are taken", ErrFull, used.Bytes, limit), nil
	}
	if quota := c.quota(s.owner); quota > 0 && used.Owners[s.owner] > quota {
		return fmt.Errorf("%w for %s: %d of %d bytes are taken", ErrFull, s.owner, used.Owners[s.owner], quota), nil
	}
	return nil, nil
}

// write writes a size down.
func (c *Cache) write(s sizeOf) error {
	err := c.createEmpty(c.sizePath(s.name))
	if err != nil {
		return fmt.Errorf("reserve room in the cache: %w", err)
	}
	return nil
}

func (c *Cache) quota(owner string) int64 {
	if c.o.Quota == nil {
		return 0
	}
	return c.o.Quota(owner)
}
