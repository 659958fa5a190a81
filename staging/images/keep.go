package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// Wanted is a request to keep an image.
type Wanted struct {
	// From is the image's source.
	From source.Reference
	// Reference is the one by which bundles request it; the zero value means From.
	Reference source.Reference
	// Architecture is that of the nodes, in Go's spelling; empty means the Converter's.
	Architecture string
	// By names the person who keeps it.
	By string
}

// Keep brings an image to the cache, if it is not there, and keeps it there until Release, or until
// Keep gets another image for its reference. It blocks until then. It calls progress repeatedly, from
// one goroutine at a time. Any number of processes may keep and use images at the same time. One of
// them converts.
func (im *Images) Keep(ctx context.Context, w Wanted, progress func(transfer.Progress)) (KeptImage, error) {
	im.begin()
	if w.Reference.Full() == "" {
		w.Reference = w.From
	}
	item := &transfer.Item{Name: "image " + w.From.String(), Image: true}
	var k KeptImage
	show := func(p transfer.Progress) {
		if p.Stage == transfer.Reading { // it is a SIF to copy
			p.Stage = transfer.Storing
		}
		progress(p)
	}
	err := transfer.Watch(item, show, func() (err error) {
		k, err = im.keep(ctx, w, item)
		return err
	})
	if err != nil {
		return KeptImage{}, imageError(err)
	}
	return k, nil
}

func (im *Images) keep(ctx context.Context, w Wanted, item *transfer.Item) (KeptImage, error) {
	f, err := im.findWanted(ctx, w, item)
	if err != nil {
		return KeptImage{}, err
	}
	k := KeptImage{
		Format: keptFormat, Reference: w.Reference.Full(), From: w.From.String(), Digest: f.Digest, Architecture: f.Architecture,
		Private: f.private, Closed: f.closed, Since: im.Now().UTC().Truncate(time.Second), By: w.By,
	}
	old, had, err := im.Kept.Get(k.Reference, k.Architecture)
	if err != nil {
		return KeptImage{}, err
	}
	holder := im.Kept.Holder(k.Reference, k.Architecture)
	sif, key, err := im.get(ctx, f, cache.Want{Holder: holder}, "keep", item)
	if err == nil {
		err = im.Cache.Pin(ctx, key, k.Apart(), holder)
	}
	if err == nil {
		k.Key = key
		var info os.FileInfo
		if info, err = os.Stat(sif); err == nil {
			k.Size = info.Size()
		}
	}
	if err == nil {
		err = im.Kept.put(k)
	}
	if err != nil {
		return KeptImage{}, errors.Join(err, im.dropPins(context.WithoutCancel(ctx), holder, k, old, had, f.key, im.key(f.Image)))
	}
	im.References.add(f.Image)
	if had && !im.sameEntry(old, k) {
		err = im.Cache.DropPin(context.WithoutCancel(ctx), old.Key, old.Apart(), holder)
	}
	return k, err
}

func (im *Images) findWanted(ctx context.Context, w Wanted, item *transfer.Item) (found, error) {
	if w.From.Kind() != source.SIF {
		return im.resolve(ctx, "", w.From, w.Architecture, item)
	}
	f, err := im.findSIFToCopy(ctx, w.From, w.Architecture, item)
	if err == nil && w.Reference.Kind() != source.InRegistry {
		err = &transfer.Error{Err: fmt.Errorf("image %q: a SIF is used in place; to keep a copy of it, also give the reference by which bundles request it", w.From)}
	}
	f.Reference = w.Reference
	return f, err
}

// dropPins drops a holder's pins of the keys for k, except for the pin of the image that it kept
// before.
func (im *Images) dropPins(ctx context.Context, holder cache.Holder, k, old KeptImage, had bool, keys ...cache.Key) error {
	var errs []error
	for _, k.Key = range keys {
		if !had || !im.sameEntry(old, k) {
			errs = append(errs, im.Cache.DropPin(ctx, k.Key, k.Apart(), holder))
		}
	}
	return errors.Join(errs...)
}

// sameEntry reports whether two images have the same SIF in the cache.
func (im *Images) sameEntry(a, b KeptImage) bool {
	return a.Key == b.Key && (a.Apart() == b.Apart() || !im.Cache.Grouped())
}

// Repin pins all kept images again, because a host's own disk may lose a pin in a crash and keep
// the record.
func (im *Images) Repin(ctx context.Context) error {
	all, err := im.Kept.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range all {
		holder := im.Kept.Holder(k.Reference, k.Architecture)
		errs = append(errs, im.Cache.Pin(ctx, k.Key, k.Apart(), holder))
		if now, kept, err := im.Kept.Get(k.Reference, k.Architecture); err == nil && (!kept || !im.sameEntry(now, k)) {
			// It was released in between.
			errs = append(errs, im.Cache.DropPin(context.WithoutCancel(ctx), k.Key, k.Apart(), holder))
		}
	}
	return errors.Join(errs...)
}

// Release ends the keeping of an image. Its SIF stays until the cache needs the room.
func (im *Images) Release(ctx context.Context, reference, architecture string) error {
	// The record goes first, because each record must have a pin.
	if err := im.Kept.remove(reference, architecture); err != nil {
		return err
	}
	return im.Cache.Unpin(ctx, im.Kept.Holder(reference, architecture))
}
