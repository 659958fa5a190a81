package staging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Images brings images in as SIFs: for bundles, and to be kept. It is safe for
// concurrent use; its exported fields are not changed once it is used.
type Images struct {
	// Cache is where the SIFs are, Converter what makes them.
	Cache     *cache.Cache
	Converter apptainer.Converter
	// Kept are the images that were brought in to stay.
	Kept KeptImages
	// Names are what the SIFs in the cache were asked for by.
	Names ImageNames
	// Files are SIFs that are used where they lie; nil for none.
	Files *ImageFiles
	// Remember is how long it is taken for true what a registry says that a
	// reference stands for; 0 means DefaultRemember.
	Remember time.Duration
	// Patience is how long a registry is waited for where an image is kept; 0 means
	// ten seconds.
	Patience time.Duration
	// Offline has no registry asked: the kept images are all there are.
	Offline bool
	// AtOnce is how many images are brought in at a time; 0 means
	// DefaultConversions.
	AtOnce int
	// LowWater is how much of a disk of this size has to stay free; nil for none.
	LowWater func(total int64) int64
	// Login returns the source as an owner's credentials show it, and whose
	// these are: empty where the owner has given none, and those of the site, if
	// it has some, are for all. It may be nil: all see the Converter's.
	Login func(owner string, ref source.Reference) (from source.Source, whose string)
	// Convert makes a SIF as the Converter's method of that name does, such as
	// elsewhere; nil is the Converter itself.
	Convert func(ctx context.Context, c apptainer.Converter, img source.Image, dst string, progress func(apptainer.Progress)) error
	// Now is the clock; nil is the machine's.
	Now func() time.Time

	once     sync.Once
	turns    turns
	board    board
	registry resolver
}

const (
	// DefaultRemember is how long a registry is not asked again for the same. Then
	// it is asked whether anything has changed, which does not count as a pull.
	DefaultRemember = time.Minute
	// DefaultConversions is how many images are brought in at a time. Each keeps
	// a few of a login node's processors busy.
	DefaultConversions = 2
)

func (im *Images) begin() {
	im.once.Do(func() {
		im.turns.free = cmp.Or(im.AtOnce, DefaultConversions)
		im.registry.remember, im.registry.now = cmp.Or(im.Remember, DefaultRemember), im.now
	})
}

func (im *Images) now() time.Time {
	if im.Now == nil {
		return time.Now() //nolint:forbidigo // for who has no other clock
	}
	return im.Now()
}

// found is an image that a reference stands for.
type found struct {
	source.Image
	// key is that of its SIF. As kept, the SIF is in the cache already.
	key  cache.Key
	kept bool
	// from is where it comes from, as whoever asks sees it; nil where none
	// was asked. private is set where that took credentials, closed where it was read
	// from a file that not all may read who share the cache.
	from            *source.Source
	private, closed bool
	// file is the SIF that it is a copy of; empty for images with layers.
	file string
}

// image brings a run's image in, or finds it where it lies.
func (s *Stager) image(ctx context.Context, run codalab.RunBundle, name, architecture string, p *part) (spool.Inputs, error) {
	im := s.Images
	im.begin()
	if name == "" {
		return spool.Inputs{}, &Error{What: "image", Err: errors.New("none was asked for, and there is no default: use --request-docker-image")}
	}
	if _, _, ok := isImageFile(name); ok {
		return s.imageFile(ctx, run, name, architecture, p)
	}
	ref, err := source.ParseReference(name)
	if err != nil {
		return spool.Inputs{}, imageError(err)
	}
	f, err := im.find(ctx, run.OwnerID, ref, architecture, p)
	sif := ""
	if err == nil {
		sif, _, err = im.get(ctx, f, cache.Want{Owner: run.OwnerID, Holder: s.holder(run)}, run.UUID, p)
	}
	if err != nil {
		return spool.Inputs{}, imageError(err)
	}
	im.Names.note(f.Image)
	return spool.Inputs{Image: sif, ImageDigest: Shown(f.Image)}, nil
}

// find finds out what a reference stands for: by the registry, or where that
// cannot be asked by what is kept.
func (im *Images) find(ctx context.Context, owner string, ref source.Reference, architecture string, p *part) (found, error) {
	if im.Offline && ref.Kind() == source.InRegistry {
		return im.offline(ref, architecture)
	}
	// What took credentials is not given to whom the registry cannot be asked about.
	k, there, err := im.Kept.find(ref, im.architecture(architecture))
	if err != nil || !there || k.Private {
		return im.ask(ctx, owner, ref, architecture, p)
	}
	asking, cancel := context.WithTimeout(ctx, cmp.Or(im.Patience, keptPatience))
	defer cancel()
	f, err := im.ask(asking, owner, ref, architecture, p)
	var refused *source.ImageError
	away := errors.As(err, &refused) && refused.Transient() || err != nil && asking.Err() != nil
	if away && ctx.Err() == nil {
		return asKept(ref, k), nil
	}
	return f, err
}

// keptPatience is how long a registry is waited for that others need not wait for.
const keptPatience = 10 * time.Second

// offline is find where no registry is to be asked.
func (im *Images) offline(ref source.Reference, architecture string) (found, error) {
	architecture = im.architecture(architecture)
	k, there, err := im.Kept.find(ref, architecture)
	switch {
	case err != nil:
		return found{}, err
	case !there:
		return found{}, &Error{Err: fmt.Errorf("image %q: it is not among the kept images for linux/%s, and this site asks no registry: ask its operator for cl-bridge image pull", ref, architecture)}
	}
	return asKept(ref, k), nil
}

func asKept(ref source.Reference, k KeptImage) found {
	img := source.Image{Reference: ref, Digest: k.Digest, Architecture: k.Architecture}
	return found{Image: img, key: k.Key, kept: true, private: k.Private, closed: k.Closed}
}

// apart says whether the image's SIF is kept from others who share the cache.
func (f found) apart() bool { return f.private || f.closed }

// host is that of a reference's registry.
func host(ref source.Reference) string {
	host, _, _ := strings.Cut(ref.Name(), "/")
	return host
}

// ask asks the registry, as the owner sees it.
func (im *Images) ask(ctx context.Context, owner string, ref source.Reference, architecture string, p *part) (found, error) {
	from, whose := im.Converter.Source, ""
	if im.Login != nil {
		from, whose = im.Login(owner, ref)
	}
	from.Architecture = im.architecture(architecture)
	if ref.Kind() == source.InRegistry {
		p.asks(host(ref))
	} else {
		from.Closed = func(f *os.File) bool { return !im.Cache.MayShare(f) }
	}
	img, err := im.registry.resolve(ctx, question{ref.Name(), from.Architecture, whose}, ref, from)
	p.asks("")
	if err != nil {
		return found{}, err
	}
	f := found{Image: img, key: im.key(img), from: &from, private: img.Private, closed: img.Closed}
	k, there, err := im.Kept.find(ref, f.Architecture)
	if err == nil && there && k.Digest == f.Digest && k.Private == f.private && (k.Closed || !f.closed) {
		f.key, f.kept, f.closed = k.Key, true, k.Closed // however it was converted
	}
	return f, nil
}

// architecture is one, or that of the Converter's source where none is given.
func (im *Images) architecture(given string) string {
	return cmp.Or(given, im.Converter.Source.Architecture, runtime.GOARCH)
}

// errNotKept means that a kept image's SIF is not in the cache any more.
var errNotKept = errors.New("its SIF is not in the cache any more: pull it again")

// get returns the path of the SIF of an image, and its key. w says for whom.
func (im *Images) get(ctx context.Context, f found, w cache.Want, who string, p *part) (sif string, key cache.Key, err error) {
	w.Private = f.apart()
	if f.kept {
		w.Key = f.key
		sif, err := im.board.get(ctx, im.Cache, w, who, p, func(context.Context, *download, string) error { return errNotKept })
		if !errors.Is(err, errNotKept) {
			return sif, w.Key, err
		}
		if f.from == nil {
			return "", w.Key, &Error{Err: fmt.Errorf("image %q is kept, but %w", f.Reference, errNotKept), Retry: true, Away: true}
		}
	}
	w.Key, w.Resume = im.key(f.Image), true
	bring := im.convert
	if f.file != "" {
		w.Key, w.Resume, bring = f.key, false, im.copyFile
	}
	sif, err = im.board.get(ctx, im.Cache, w, who, p, func(ctx context.Context, d *download, tmp string) error {
		return im.turns.do(ctx, d, func() error { return bring(ctx, f, d, tmp) })
	})
	return sif, w.Key, err
}

// convert makes the SIF of an image, from layers that are there already as far as
// an earlier try has brought them.
func (im *Images) convert(ctx context.Context, f found, d *download, tmp string) error {
	if err := errors.Join(im.spare(tmp), os.RemoveAll(tmp)); err != nil { // what a killed one has written
		return err
	}
	d.doing.Store(int32(idle))
	converter := im.Converter
	converter.Source = *f.from
	progress := func(p apptainer.Progress) {
		doing := idle
		if p.Stage == apptainer.Converting {
			doing = converting
		}
		d.doing.Store(int32(doing))
		d.total.Store(p.Total)
		d.done.Store(p.Done)
	}
	var err error
	if im.Convert != nil {
		err = im.Convert(ctx, converter, f.Image, tmp, progress)
	} else {
		err = converter.Convert(ctx, f.Image, tmp, progress)
	}
	if err == nil {
		d.doing.Store(int32(storing))
	}
	return err
}

// imageError keeps an image's own error, which is a sentence with the image's
// name already, and says of any other that it was about the image. What may
// pass of the former is the registry's, the network's or the disk's trouble.
func imageError(err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	var refused *source.ImageError
	if errors.As(err, &refused) {
		return &Error{Err: refused, Retry: refused.Transient(), Away: refused.Transient(), After: refused.RetryAfter}
	}
	return &Error{What: "image", Err: err, Retry: true, Away: troubled(err)}
}
