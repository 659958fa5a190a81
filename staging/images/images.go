package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// Images brings images in as SIFs: for bundles, and to be kept. It is safe for concurrent
// use; its exported fields are not changed once it is used.
type Images struct {
	// Cache is where the SIFs are, Converter what makes them.
	Cache     *cache.Cache
	Converter apptainer.Converter
	// Kept are the images that operators keep.
	Kept Records
	// Names are the names by which the SIFs in the cache were asked for.
	Names Names
	// Files are SIFs that are used where they lie; nil for none.
	Files *Files
	// Remember is for how long a registry's answer counts. Then the registry is asked
	// whether anything has changed, which is not counted as a pull.
	Remember time.Duration
	// Offline has no registry asked: bundles can have the kept images only.
	Offline bool
	// AtOnce is how many images are brought in at a time, at least 1. Each keeps a few of a
	// login node's processors busy. Owners take turns (package turns).
	AtOnce int
	// MaxImageBytes is the largest image that may be pulled, as the registry sends it; 0 for no bound.
	MaxImageBytes int64
	// LowWater is how much of a disk of this size has to stay free; nil for none.
	LowWater func(total int64) int64
	// Login returns the source that uses an owner's credentials, and the name of that
	// login; the name is empty if the owner has given none, and those of the site count. It
	// may be nil: then the Converter's source counts for all.
	Login func(owner string, ref source.Reference) (from source.Source, login string)
	// Convert makes a SIF as the Converter's method of that name does, such as in a job; nil
	// is that method.
	Convert func(ctx context.Context, c apptainer.Converter, img source.Image, dst string, progress func(apptainer.Progress)) error
	// Now is the clock.
	Now func() time.Time

	once sync.Once
	// keptTimeout is how long a registry may take if the image is kept; 0 means ten seconds.
	keptTimeout time.Duration
	transfers   *transfer.Registry
	resolver    *resolver
}

func (im *Images) begin() {
	im.once.Do(func() {
		im.transfers = transfer.NewRegistry(im.AtOnce)
		im.resolver = newResolver(im.Remember, im.Now)
	})
}

// found is the image that a reference stands for.
type found struct {
	source.Image
	// key is that of its SIF. If it is kept, the SIF is in the cache already.
	key  cache.Key
	kept bool
	// from is the source, with the owner's credentials; nil if no registry was asked.
	from *source.Source
	// private is set if that took credentials, closed if it was read from a file that not
	// all members of the cache's group may read.
	private, closed bool
	// file is the SIF that it is a copy of; empty for images with layers.
	file string
}

// Stage brings the image of that name in for a run on nodes of that architecture (in Go's
// spelling; empty is the Converter's), or finds it where it lies, and returns the inputs'
// fields that describe it. holder pins it in the cache; it may be empty. item shows how far
// the image is.
func (im *Images) Stage(ctx context.Context, run codalab.RunBundle, name, architecture string, holder cache.Holder, item *transfer.Item) (spool.Inputs, error) {
	im.begin()
	if name == "" {
		return spool.Inputs{}, &transfer.Error{What: "image", Err: errors.New("none was asked for, and there is no default: use --request-docker-image")}
	}
	if isFile(name) {
		return im.stageFile(ctx, run, name, architecture, item)
	}
	ref, err := source.ParseReference(name)
	if err != nil {
		return spool.Inputs{}, imageError(err)
	}
	f, err := im.resolveOrKept(ctx, run.OwnerID, ref, architecture, item)
	sif := ""
	if err == nil {
		sif, _, err = im.get(ctx, f, cache.Want{Owner: run.OwnerID, Holder: holder}, run.UUID, item)
	}
	if err != nil {
		return spool.Inputs{}, imageError(err)
	}
	im.Names.add(f.Image)
	return spool.Inputs{Image: sif, ImageDigest: ShortName(f.Pinned())}, nil
}

// resolveOrKept resolves a reference by the registry, or by what is kept if the registry
// cannot be asked.
func (im *Images) resolveOrKept(ctx context.Context, owner string, ref source.Reference, architecture string, item *transfer.Item) (found, error) {
	k, kept, err := im.Kept.findReference(ref, im.architecture(architecture))
	if im.Offline && ref.Kind() == source.InRegistry {
		if err == nil && !kept {
			err = &transfer.Error{Err: fmt.Errorf("image %q: it is not among the kept images for linux/%s, and this site asks no registry: ask its operator for cl-bridge image pull", ref, im.architecture(architecture))}
		}
		return asKept(ref, k), err
	}
	// If the kept image took credentials, the registry decides whether the owner may have it.
	if err != nil || !kept || k.Private {
		return im.resolve(ctx, owner, ref, architecture, item)
	}
	limited, cancel := context.WithTimeout(ctx, cmp.Or(im.keptTimeout, 10*time.Second))
	defer cancel()
	f, err := im.resolve(limited, owner, ref, architecture, item)
	var refused *source.ImageError
	unanswered := errors.As(err, &refused) && refused.Transient() || err != nil && limited.Err() != nil
	if unanswered && ctx.Err() == nil {
		return asKept(ref, k), nil
	}
	return f, err
}

func asKept(ref source.Reference, k Kept) found {
	img := source.Image{Reference: ref, Digest: k.Digest, Architecture: k.Architecture}
	return found{Image: img, key: k.Key, kept: true, private: k.Private, closed: k.Closed}
}

// resolve resolves a reference by its source, with the owner's credentials.
func (im *Images) resolve(ctx context.Context, owner string, ref source.Reference, architecture string, item *transfer.Item) (found, error) {
	from, login := im.Converter.Source, ""
	if im.Login != nil {
		from, login = im.Login(owner, ref)
	}
	from.Architecture = im.architecture(architecture)
	if ref.Kind() == source.InRegistry {
		host, _, _ := strings.Cut(ref.Name(), "/")
		item.Asks(host)
	} else {
		from.Closed = func(f *os.File) bool { return !im.Cache.MayShare(f) }
	}
	img, err := im.resolver.resolve(ctx, owner, question{ref.Name(), from.Architecture, login}, ref, from)
	item.Asks("")
	if err != nil {
		return found{}, err
	}
	f := found{Image: img, key: im.key(img), from: &from, private: img.Private, closed: img.Closed}
	k, kept, err := im.Kept.findReference(ref, f.Architecture)
	if err == nil && kept && k.Digest == f.Digest && k.Private == f.private && (k.Closed || !f.closed) {
		f.key, f.kept, f.closed = k.Key, true, k.Closed // also if it was converted with other settings
	}
	return f, nil
}

// architecture is the given one, or that of the Converter's source.
func (im *Images) architecture(given string) string {
	return cmp.Or(given, im.Converter.Source.Architecture, runtime.GOARCH)
}

var errNotKept = errors.New("its SIF is not in the cache any more: pull it again")

// get returns the path of the SIF of an image, and its key. bundle waits for it; w names its
// holder and the owner that it counts for.
func (im *Images) get(ctx context.Context, f found, w cache.Want, bundle string, item *transfer.Item) (sif string, key cache.Key, err error) {
	w.Private = f.private || f.closed
	if f.kept {
		w.Key = f.key
		sif, err := im.transfers.Get(ctx, im.Cache, w, bundle, item, func(context.Context, *transfer.Transfer, string) error { return errNotKept })
		if !errors.Is(err, errNotKept) {
			return sif, w.Key, err
		}
		if f.from == nil {
			return "", w.Key, &transfer.Error{Err: fmt.Errorf("image %q is kept, but %w", f.Reference, errNotKept), Retry: true, IsOutage: true}
		}
	}
	w.Key, w.Resume = im.key(f.Image), true
	fill := im.convert
	if f.file != "" {
		w.Key, w.Resume, fill = f.key, false, im.copyFile
	}
	sif, err = im.transfers.Get(ctx, im.Cache, w, bundle, item, func(ctx context.Context, t *transfer.Transfer, tmp string) error {
		return t.InTurn(ctx, func() error { return fill(ctx, f, t, tmp) })
	})
	return sif, w.Key, err
}

// convert makes the SIF of an image. An earlier try may have left some of its layers.
func (im *Images) convert(ctx context.Context, f found, t *transfer.Transfer, tmp string) error {
	if err := errors.Join(im.checkSpace(tmp), os.RemoveAll(tmp)); err != nil { // what a killed one has written
		return err
	}
	t.SetStage(transfer.Idle)
	if err := im.checkSize(ctx, f); err != nil {
		return err
	}
	converter := im.Converter
	converter.Source = *f.from
	progress := func(p apptainer.Progress) {
		stage := transfer.Idle
		if p.Stage == apptainer.Converting {
			stage = transfer.Converting
		}
		t.SetStage(stage)
		t.SetBytes(p.Done, p.Total)
	}
	var err error
	if im.Convert != nil {
		err = im.Convert(ctx, converter, f.Image, tmp, progress)
	} else {
		err = converter.Convert(ctx, f.Image, tmp, progress)
	}
	if err == nil {
		t.SetStage(transfer.Storing)
	}
	return err
}

// checkSize refuses an image that is too large (codalab/worker/image_manager.py: get).
func (im *Images) checkSize(ctx context.Context, f found) error {
	if im.MaxImageBytes <= 0 {
		return nil
	}
	opened, err := f.from.Open(ctx, f.Image)
	if err != nil {
		return err
	}
	defer opened.Close()
	if size := opened.PulledBytes(); size > im.MaxImageBytes {
		return &transfer.Error{What: "image " + ShortName(f.Pinned()), Err: &transfer.SizeError{Size: size, Most: im.MaxImageBytes}}
	}
	return nil
}

// checkSpace refuses to make an image on a disk that has too little free already: nobody
// knows beforehand how much it takes.
func (im *Images) checkSpace(tmp string) error {
	disk, err := diskspace.Of(filepath.Dir(tmp))
	if err != nil {
		return err
	}
	if im.LowWater != nil && disk.Free < im.LowWater(disk.Total) {
		return fmt.Errorf("%s: %w", transfer.DescribeSpace(disk.Free, im.LowWater(disk.Total)), syscall.ENOSPC)
	}
	return nil
}

// imageError makes an Error of any error about an image. A source.ImageError is a sentence
// with the image's name already; if it is transient, a registry, the network or the disk is
// in trouble. Other errors may report an outage themselves, such as a Slurm that does not run
// the conversion now.
func imageError(err error) error {
	var own *transfer.Error
	if errors.As(err, &own) {
		return own
	}
	var refused *source.ImageError
	if errors.As(err, &refused) {
		return &transfer.Error{Err: refused, Retry: refused.Transient(), IsOutage: refused.Transient(), After: refused.RetryAfter}
	}
	var site interface{ Outage() bool }
	outage := transfer.IsDiskTrouble(err) || errors.As(err, &site) && site.Outage()
	return &transfer.Error{What: "image", Err: err, Retry: true, IsOutage: outage}
}

// ShortName is a full name as people write it: without Docker Hub's parts. With a digest it
// may be asked for again (codalab/worker/docker_image_manager.py: _image_availability_state
// reports RepoDigests; bundle_util.py: mimic_bundles asks for what was reported).
func ShortName(full string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(full, "index."), "docker.io/")
	if rest, ok := strings.CutPrefix(name, "library/"); ok && !strings.Contains(rest, "/") {
		return rest
	}
	return name
}

func (im *Images) key(img source.Image) cache.Key {
	return cache.Key{Kind: sifKind, ID: img.Digest + " " + img.Architecture + " " + im.Converter.Settings()}
}

const sifKind = "sif"

// Key is what the key of a SIF in the cache contains.
type Key struct {
	// Digest is that of the platform's manifest, Settings those of the conversion.
	Digest, Architecture, Settings string
}

// ParseKey reads the key of a SIF. It is false for other entries of the cache.
func ParseKey(key cache.Key) (img Key, ok bool) {
	if key.Kind != sifKind {
		return img, false
	}
	img.Digest, img.Settings, _ = strings.Cut(key.ID, " ")
	img.Architecture, img.Settings, ok = strings.Cut(img.Settings, " ")
	return img, ok
}
