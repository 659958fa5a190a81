package staging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
)

// Wanted is an image that is to be kept.
type Wanted struct {
	// Reference is where it comes from.
	Reference source.Reference
	// Name is what bundles ask for it by; the zero value is Reference.
	Name source.Reference
	// Architecture is that of the nodes, in Go's spelling; empty is the
	// Converter's.
	Architecture string
	// By names who wants it.
	By string
}

// ImageStage says what is done to bring an image in.
type ImageStage string

// The stages of an image, as a rule in this order.
const (
	Asking     ImageStage = "asking"     // the registry what the reference stands for
	Queued     ImageStage = "queued"     // for other images of this process
	Elsewhere  ImageStage = "elsewhere"  // another process brings it in
	Pulling    ImageStage = "pulling"    // its layers
	Converting ImageStage = "converting" // them to a SIF
	Storing    ImageStage = "storing"    // reading the SIF back and flushing it
)

// ImageProgress says how far an image is.
type ImageProgress struct {
	Stage ImageStage `json:"stage"`
	// By is who is asked, or brings it in elsewhere.
	By string `json:"by,omitempty"`
	// Done and Total are bytes of layers while they are pulled, of files while
	// they are converted; Total is 0 while it is not known. Rate is how many
	// there were a second.
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
	Rate  int64 `json:"rate"`
}

// name is what the stage is called outside.
func (s stage) name() ImageStage {
	return [...]ImageStage{idle: "", asking: Asking, queued: Queued, elsewhere: Elsewhere, moving: Pulling, converting: Converting, storing: Storing, reviewing: Storing}[s]
}

// showEvery is the pause between two calls of a Keep's progress.
const showEvery = 200 * time.Millisecond

// Keep brings an image in, unless the cache has it, and keeps it there until
// Release, or until another is kept by its name. It blocks until all is done.
// progress is called now and then, from one goroutine at a time. Any number of
// processes may keep and use images at once; one converts.
func (im *Images) Keep(ctx context.Context, w Wanted, progress func(ImageProgress)) (KeptImage, error) {
	im.begin()
	if w.Name.Name() == "" {
		w.Name = w.Reference
	}
	p := &part{name: "image " + w.Reference.String(), image: true}
	stop := make(chan struct{})
	var talk errgroup.Group
	talk.Go(func() error {
		show(p, progress, stop)
		return nil
	})
	k, err := im.keep(ctx, w, p)
	close(stop)
	if err := errors.Join(err, talk.Wait()); err != nil {
		return KeptImage{}, imageError(err)
	}
	return k, nil
}

func (im *Images) keep(ctx context.Context, w Wanted, p *part) (KeptImage, error) {
	ask := im.ask
	if w.Reference.Kind() == source.SIF {
		ask = im.askFile
	}
	f, err := ask(ctx, "", w.Reference, w.Architecture, p)
	if err != nil {
		return KeptImage{}, err
	}
	if f.file != "" {
		if w.Name.Kind() != source.InRegistry {
			return KeptImage{}, &Error{Err: fmt.Errorf("image %q: a SIF is used where it lies; to keep a copy of it, name the image that bundles are to ask for", w.Reference)}
		}
		f.Reference = w.Name
	}
	k := KeptImage{
		Format: keptFormat, Name: w.Name.Name(), From: w.Reference.String(), Digest: f.Digest, Architecture: f.Architecture,
		Private: f.private, Closed: f.closed, Since: im.now().UTC().Truncate(time.Second), By: w.By,
	}
	old, had, err := im.Kept.Get(k.Name, k.Architecture)
	if err != nil {
		return KeptImage{}, err
	}
	holder := im.Kept.Holder(k.Name, k.Architecture)
	sif, key, err := im.get(ctx, f, cache.Want{Holder: holder}, "keep", p)
	if err == nil {
		k.Key = key
		k.Size, err = size(sif)
	}
	if err == nil {
		err = im.Kept.put(k)
	}
	if err != nil {
		return KeptImage{}, errors.Join(err, im.letGo(holder, k, old, had, f.key, im.key(f.Image)))
	}
	im.Names.note(f.Image)
	if had && !im.sameEntry(old, k) {
		err = im.Cache.DropPin(old.Key, old.Apart(), holder)
	}
	return k, err
}

// letGo drops a holder's pins of keys that k was to have, but that of what it kept
// before.
func (im *Images) letGo(holder cache.Holder, k, old KeptImage, had bool, keys ...cache.Key) error {
	var errs []error
	for _, k.Key = range keys {
		if !had || !im.sameEntry(old, k) {
			errs = append(errs, im.Cache.DropPin(k.Key, k.Apart(), holder))
		}
	}
	return errors.Join(errs...)
}

// sameEntry says whether two have one SIF in the cache.
func (im *Images) sameEntry(a, b KeptImage) bool {
	return a.Key == b.Key && (a.Apart() == b.Apart() || !im.Cache.Grouped())
}

func size(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// show calls progress with how far a part is, until stop is closed.
func show(p *part, progress func(ImageProgress), stop <-chan struct{}) {
	tick := time.NewTicker(showEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			if v := p.look(now); v.stage != idle {
				progress(ImageProgress{Stage: v.stage.name(), By: v.by, Done: v.done, Total: v.total, Rate: v.rate})
			}
		}
	}
}

// Repin pins what is kept once more: a host's own disk may have lost a pin in a
// crash, and not the record.
func (im *Images) Repin(ctx context.Context) error {
	all, err := im.Kept.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range all {
		holder := im.Kept.Holder(k.Name, k.Architecture)
		errs = append(errs, im.Cache.Pin(ctx, k.Key, k.Apart(), holder))
		if now, there, err := im.Kept.Get(k.Name, k.Architecture); err == nil && (!there || !im.sameEntry(now, k)) {
			errs = append(errs, im.Cache.DropPin(k.Key, k.Apart(), holder)) // it was let go meanwhile
		}
	}
	return errors.Join(errs...)
}

// Release keeps an image no longer. Its SIF stays in the cache until that needs
// its room.
func (im *Images) Release(ctx context.Context, name, architecture string) error {
	// The record first: what is kept is pinned.
	if err := im.Kept.remove(name, architecture); err != nil {
		return err
	}
	return im.Cache.Unpin(ctx, im.Kept.Holder(name, architecture))
}
