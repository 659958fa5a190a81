package engineimages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// record is an image that was brought into the store: it was not there before.
type record struct {
	ID string `json:"id"`
	// Refs are the names that it has in the store because of this worker.
	Refs    []string       `json:"refs"`
	Bytes   int64          `json:"bytes"`
	Used    time.Time      `json:"used"`
	Holders []cache.Holder `json:"holders,omitempty"`
}

// load reads the file of records once. The caller holds mu, as for all below that say nothing else.
func (im *Images) load() error {
	if im.loaded {
		return nil
	}
	data, err := os.ReadFile(im.State)
	if err == nil {
		err = json.Unmarshal(data, &im.brought)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read which images were pulled, in %s: %w", im.State, err)
	}
	im.loaded = true
	return nil
}

func (im *Images) save() error {
	data, err := json.MarshalIndent(im.brought, "", "  ")
	if err == nil {
		err = atomicfile.Write(im.State, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write which images were pulled: %w", err)
	}
	return nil
}

func (im *Images) find(id string) *record {
	i := slices.IndexFunc(im.brought, func(r record) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &im.brought[i]
}

// note records an image that was just pulled, given what the store had before. It takes mu.
func (im *Images) note(w wanted, got image, before map[string][]string) (image, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if err := im.load(); err != nil {
		return image{}, err
	}
	im.fresh[w.full] = im.Now().Add(im.Remember)
	had, there := before[got.ID]
	r := im.find(got.ID)
	if r == nil && there {
		return got, nil // it is somebody else's
	}
	if r == nil {
		im.brought = append(im.brought, record{ID: got.ID})
		r = im.find(got.ID)
	}
	for _, ref := range got.refs() {
		if !slices.Contains(had, ref) && !slices.Contains(r.Refs, ref) {
			r.Refs = append(r.Refs, ref)
		}
	}
	r.Bytes, r.Used, got.brought = got.Size, im.Now(), true
	return got, im.save()
}

// touch notes a use of an image that the store has. It takes mu. The file gets the time with its next
// change.
func (im *Images) touch(got image) (image, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if err := im.load(); err != nil {
		return image{}, err
	}
	if r := im.find(got.ID); r != nil {
		r.Used, got.brought = im.Now(), true
	}
	return got, nil
}

// errRemoved means that an image was trimmed in the moment between its arrival and its use.
var errRemoved = errors.New("the image was removed in the moment when it had come")

// hold keeps an image for a holder. It takes mu. Only an image that was brought needs that: Trim
// removes no others.
func (im *Images) hold(got image, holder cache.Holder) error {
	im.mu.Lock()
	defer im.mu.Unlock()
	r := im.find(got.ID)
	switch {
	case r == nil && got.brought:
		return errRemoved
	case r == nil || holder == "" || slices.Contains(r.Holders, holder):
		return nil
	}
	r.Holders = append(r.Holders, holder)
	return im.save()
}

// Trim removes images that Stage has brought and that no holder needs, those first that were used the
// longest time ago, until the sum of the rest is within MaxStoreBytes. It returns their names.
func (im *Images) Trim(ctx context.Context) (removed []string, err error) {
	im.begin()
	if im.MaxStoreBytes <= 0 {
		return nil, nil
	}
	if err := im.dropOver(ctx); err != nil {
		return nil, err
	}
	inUse := map[string]bool{}
	for {
		r, over := im.leastRecent(inUse)
		if !over {
			return removed, ctx.Err()
		}
		name, err := im.removeImage(ctx, r.ID)
		switch {
		case err != nil:
			return removed, err
		case name == "":
			inUse[r.ID] = true
		default:
			removed = append(removed, name)
		}
	}
}

// leastRecent returns the image to remove next; over is false if the sum is within the bound, or
// nothing can be removed. It takes mu.
func (im *Images) leastRecent(inUse map[string]bool) (least record, over bool) {
	im.mu.Lock()
	defer im.mu.Unlock()
	sum := int64(0)
	var free []record
	for _, r := range im.brought {
		sum += r.Bytes
		if len(r.Holders) == 0 && !inUse[r.ID] {
			free = append(free, r)
		}
	}
	if sum <= im.MaxStoreBytes || len(free) == 0 {
		return record{}, false
	}
	return slices.MinFunc(free, func(a, b record) int { return a.Used.Compare(b.Used) }), true
}

// removeImage takes the names from an image that it has because of this worker, and forgets it. It
// returns an empty name if a container needs the image, or a bundle meanwhile. It takes mu.
func (im *Images) removeImage(ctx context.Context, id string) (name string, err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	r := im.find(id)
	if r == nil || len(r.Holders) > 0 {
		return "", nil
	}
	have, err := im.Engine.inspect(ctx, id)
	if err == nil {
		ours := slices.DeleteFunc(have.refs(), func(ref string) bool { return !slices.Contains(r.Refs, ref) })
		if len(have.refs()) == 0 {
			ours = []string{id}
		}
		name = id
		if len(ours) > 0 {
			name = ours[0]
			// It also fails where the removal of one name has removed another.
			_ = im.Engine.remove(ctx, ours...)
		}
		have, err = im.Engine.inspect(ctx, id)
	}
	switch {
	case errors.Is(err, errNone):
	case err != nil:
		return "", err
	case len(have.refs()) == 0, slices.ContainsFunc(have.refs(), func(ref string) bool { return slices.Contains(r.Refs, ref) }):
		return "", nil // a container has it
	} // else others have given it names, and it is theirs now
	im.brought = slices.DeleteFunc(im.brought, func(r record) bool { return r.ID == id })
	clear(im.fresh)
	if name == "" {
		name = id // somebody else removed it
	}
	return name, im.save()
}

// trimEvery is the pause between two passes of KeepTrimmed.
const trimEvery = 10 * time.Second // codalab/worker/image_manager.py: _sleep_secs

// KeepTrimmed calls Trim now and then until ctx ends. It skips a pass while ready is false: it may not
// be known yet which holders are over.
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
			logger.WarnContext(ctx, "images were not trimmed", slog.Any("error", err))
		}
	}
}

// dropOver drops the holders that are over.
func (im *Images) dropOver(ctx context.Context) error {
	holders, err := im.holders()
	if err != nil || len(holders) == 0 || im.Over == nil {
		return err
	}
	over, err := im.Over(ctx, holders)
	if err != nil {
		return err
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	changed := false
	for i := range im.brought {
		r := &im.brought[i]
		kept := slices.DeleteFunc(slices.Clone(r.Holders), func(h cache.Holder) bool { return over[h] })
		changed = changed || len(kept) < len(r.Holders)
		r.Holders = kept
	}
	if !changed {
		return nil
	}
	return im.save()
}

// holders lists all holders. It takes mu.
func (im *Images) holders() (all []cache.Holder, err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if err := im.load(); err != nil {
		return nil, err
	}
	for _, r := range im.brought {
		all = append(all, r.Holders...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
