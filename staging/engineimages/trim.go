package engineimages

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// Trim removes images that Stage has brought and that no holder needs, the least recently used
// first, until the sum of the others is within MaxStoreBytes. It returns their references. It also drops
// the holders that are over.
func (im *Images) Trim(ctx context.Context) (removed []string, err error) {
	im.begin()
	if err := im.dropOver(ctx); err != nil || im.MaxStoreBytes <= 0 {
		return nil, err
	}
	inUse := map[string]bool{}
	for {
		id, err := im.leastRecent(ctx, inUse)
		if err != nil || id == "" {
			return removed, errors.Join(err, ctx.Err())
		}
		reference, err := im.removeImage(ctx, id)
		switch {
		case err != nil:
			return removed, err
		case reference == "":
			inUse[id] = true
		default:
			removed = append(removed, reference)
		}
	}
}

// leastRecent returns the id of the image to remove next. It returns "" if the sum is within the
// limit, or no image can be removed.
func (im *Images) leastRecent(ctx context.Context, inUse map[string]bool) (id string, err error) {
	err = im.change(ctx, func(all *records) (bool, error) {
		sum := int64(0)
		var free []record
		for _, r := range *all {
			if !r.brought() {
				continue
			}
			sum += r.Bytes
			if len(r.Holders) == 0 && !inUse[r.ID] {
				free = append(free, r)
			}
		}
		if sum > im.MaxStoreBytes && len(free) > 0 {
			id = slices.MinFunc(free, func(a, b record) int { return a.Used.Compare(b.Used) }).ID
		}
		return false, nil
	})
	return id, err
}

// removeImage removes the references that these workers gave an image, and the image's record. It
// returns "" if a container or a bundle needs the image.
func (im *Images) removeImage(ctx context.Context, id string) (reference string, err error) {
	err = im.change(ctx, func(all *records) (bool, error) {
		r := all.find(id)
		if r == nil || len(r.Holders) > 0 {
			return false, nil
		}
		removed, err := im.Engine.removeReferences(ctx, id, r.References)
		if err != nil || removed == "" {
			return false, err
		}
		reference = removed
		*all = slices.DeleteFunc(*all, func(r record) bool { return r.ID == id })
		clear(im.fresh)
		return true, nil
	})
	return reference, err
}

// removeReferences removes some references from an image. It returns one of them, or the id if the image has
// none of them any more, or "" if a container has the image.
func (e Engine) removeReferences(ctx context.Context, id string, references []string) (removed string, err error) {
	removed = id
	have, err := e.inspect(ctx, id)
	if err == nil {
		ours := slices.DeleteFunc(have.references(), func(ref string) bool { return !slices.Contains(references, ref) })
		if len(have.references()) == 0 {
			ours = []string{id}
		}
		if len(ours) > 0 {
			removed = ours[0]
			// It also fails if the removal of one reference has removed another.
			_ = e.remove(ctx, ours...)
		}
		have, err = e.inspect(ctx, id)
	}
	switch {
	case errors.Is(err, errNone):
		return removed, nil
	case err != nil:
		return "", err
	case len(have.references()) == 0, slices.ContainsFunc(have.references(), func(ref string) bool { return slices.Contains(references, ref) }):
		return "", nil
	}
	return removed, nil // it has foreign references, and is foreign now
}

// trimEvery is the pause between two passes of KeepTrimmed.
const trimEvery = 10 * time.Second // codalab/worker/image_manager.py: _sleep_secs

// KeepTrimmed calls Trim every trimEvery until ctx ends. It skips a pass while ready returns false,
// because Over may not know yet which holders are over.
func (im *Images) KeepTrimmed(ctx context.Context, ready func() bool, logger *slog.Logger) {
	for pause.For(ctx, trimEvery) == nil {
		if !ready() {
			continue
		}
		removed, err := im.Trim(ctx)
		if len(removed) > 0 {
			logger.InfoContext(ctx, "removed images", slog.Any("images", removed))
		}
		if err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "cannot trim the images", slog.Any("error", err))
		}
	}
}

// dropOver drops the holders that are over.
func (im *Images) dropOver(ctx context.Context) error {
	if im.Over == nil {
		return nil
	}
	holders, err := im.holders(ctx)
	if err != nil {
		return err
	}
	over := map[cache.Holder]bool{}
	for home, of := range holders {
		judged, err := im.Over(ctx, home, of)
		if err != nil {
			return err
		}
		maps.Copy(over, judged)
	}
	return im.change(ctx, func(all *records) (changed bool, err error) {
		for _, r := range *all {
			before := len(r.Holders)
			maps.DeleteFunc(r.Holders, func(h cache.Holder, _ string) bool { return over[h] })
			changed = changed || len(r.Holders) < before
		}
		*all = slices.DeleteFunc(*all, func(r record) bool { return !r.brought() && len(r.Holders) == 0 })
		return changed, nil
	})
}

// holders lists the holders of each home.
func (im *Images) holders(ctx context.Context) (of map[string][]cache.Holder, err error) {
	of = map[string][]cache.Holder{}
	err = im.change(ctx, func(all *records) (bool, error) {
		for _, r := range *all {
			for h, home := range r.Holders {
				if !slices.Contains(of[home], h) {
					of[home] = append(of[home], h)
				}
			}
		}
		return false, nil
	})
	for _, holders := range of {
		slices.Sort(holders)
	}
	return of, err
}
