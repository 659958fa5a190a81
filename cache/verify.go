package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Verify reads every entry's content and compares it with its digest. It retires damaged entries:
// the next Get makes them anew, and their holders keep the damaged ones. It calls seen, if that is
// not nil, with each entry and its error: nil, ErrDamaged, or the reason why the content could not
// be read, such as fs.ErrPermission for another user's private content in a group's cache. Verify
// returns only errors of ctx or of the disk.
func (c *Cache) Verify(ctx context.Context, seen func(Entry, error)) error {
	err := c.shards(ctx, func(s shard) error {
		for _, hash := range s.records {
			found, ok := s.read(hash)
			wrong, err := c.verify(ctx, entryNames{hash: hash, dir: s.dir})
			if err != nil {
				return err
			}
			if seen != nil && (ok || wrong != nil) {
				seen(found, wrong)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("verify the cache: %w", err)
	}
	return nil
}

// verify checks one entry. If files are missing, the entry may just have been removed, so it counts
// as damaged only if its record still stands afterwards.
func (c *Cache) verify(ctx context.Context, e entryNames) (wrong, err error) {
	r, wrong := c.readEntry(e)
	if wrong == nil {
		var got sum
		got, wrong = digest(ctx, e.content(r.Token), false)
		if wrong == nil && got.digest != r.Digest {
			wrong = fmt.Errorf("%w: its digest is %s, and was %s when it was made", ErrDamaged, got.digest, r.Digest)
		}
	}
	if wrong == nil || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if !errors.Is(wrong, ErrDamaged) && !errors.Is(wrong, fs.ErrNotExist) {
		return wrong, nil // an error of the disk or this process, or another user's content
	}
	if _, err := c.probe(e.dir); err != nil {
		return nil, err
	}
	again, err := c.readEntry(e)
	if errors.Is(err, fs.ErrNotExist) || again.Token != r.Token {
		return nil, nil // the content was removed or replaced during the check
	}
	if !errors.Is(wrong, ErrDamaged) {
		wrong = fmt.Errorf("%w: %w", ErrDamaged, wrong)
	}
	return wrong, c.retire(entryNames{key: r.Key, hash: e.hash, dir: e.dir}, r.Token)
}
