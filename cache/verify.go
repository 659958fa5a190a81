package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Verify reads every entry's content and compares it with its digest. An entry
// that is damaged is taken out of use, so that it is made anew when it is
// wanted again; who has it pinned keeps it. Each is passed to seen, if that is
// not nil, with what is wrong with it. The error is that of ctx or of the disk.
func (c *Cache) Verify(ctx context.Context, seen func(Entry, error)) error {
	holder := Holder("verify-" + newToken())
	defer func() { _ = c.Unpin(context.WithoutCancel(ctx), holder) }()
	err := c.shards(ctx, func(s shard) error {
		for _, hash := range s.records {
			e := entry{hash: hash, dir: s.dir}
			if err := c.pin(ctx, e, holder); err != nil {
				return err
			}
			found, ok := s.read(hash)
			wrong, err := c.verify(ctx, e)
			if err == nil {
				err = remove(c.pinPath(hash, holder))
			}
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

// verify checks one entry.
func (c *Cache) verify(ctx context.Context, e entry) (wrong, err error) {
	r, err := c.look(e)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil && !errors.Is(err, errDamaged) {
		return nil, err
	}
	e.key = r.Key
	wrong = err
	if wrong == nil {
		got, err := digest(ctx, e.content(r.Token), false)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			wrong = err
		case got.digest != r.Digest:
			wrong = fmt.Errorf("%w: its digest is %s, and was %s when it was made", errDamaged, got.digest, r.Digest)
		default:
			return nil, nil
		}
	}
	if passing(wrong) || errors.Is(wrong, fs.ErrPermission) {
		return wrong, nil // the disk's trouble, or another user's content
	}
	return wrong, c.retire(e, r.Token, true)
}
