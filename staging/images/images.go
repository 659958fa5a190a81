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

// Images brings images to the cache as SIFs, for bundles and to be kept. It is safe for concurrent
// use. Its exported fields must not change after its first use.
type Images struct {
	// Cache holds the SIFs, and Converter makes them.
	Cache     *cache.Cache
	Converter apptainer.Converter
	// Kept has the records of kept images.
	Kept Records
	// References records the references by which the cache's SIFs were requested.
	References References
	// Files finds SIFs that are used in place; nil means none.
	Files *Files
	// Remember is the time for which a registry's answer counts. After it the registry is asked
	// whether anything has changed, which does not count as a pull.
	Remember time.Duration
	// Offline asks no registry: bundles can use only the kept images.
	Offline bool
	// AtOnce limits the images that are brought at the same time; at least 1. Each keeps a few of a
	// login node's processors busy. Owners take turns (package turns).
	AtOnce int
	// MaxImageBytes limits the image that a registry sends; 0 means no limit.
	MaxImageBytes int64
	// LowWater returns the bytes that must stay free on a disk of this size; nil means none.
	LowWater func(total int64) int64
	// Login returns the source with an owner's credentials, and the name of that login. The name is
	// empty if the owner has given none, and the site's credentials apply. If Login is nil, the
	// Converter's source applies to all owners.
	Login func(owner string, ref source.Reference) (from source.Source, login string)
	// Convert makes a SIF, for example in a job. nil means the Converter's method of that name.
	Convert func(ctx context.Context, c apptainer.Converter, img source.Image, dst string, progress func(apptainer.Progress)) error
	// Now reads the clock.
	Now func() time.Time

	once sync.Once
	// keptTimeout limits the wait for a registry if the image is kept; 0 means ten seconds.
	keptTimeout time.Duration
	transfers   *transfer.Registry
	resolver    *resolver
}

// SetAtOnce sets the number of images that are brought at the same time, in place of AtOnce. Those under way go on.
func (im *Images) SetAtOnce(n int) {
	im.begin()
	im.transfers.SetTurns(n)
}

// AtOnceNow returns the number of images that are brought at the same time.
func (im *Images) AtOnceNow() int {
	im.begin()
	return im.transfers.Turns()
}

func (im *Images) begin() {
	im.once.Do(func() {
		im.transfers = transfer.NewRegistry(im.AtOnce)
		im.resolver = newResolver(im.Remember, im.Now)
	})
}

// found is the image of a reference.
type found struct {
	source.Image
	// key is the cache's key of its SIF. If the image is kept, the cache has the SIF.
	key  cache.Key
	kept bool
	// from is the source, with the owner's credentials; nil if no registry was asked.
	from *source.Source
	// private is set if the image needs credentials. closed is set if it comes from a file that not
	// all members of the cache's group may read.
	private, closed bool
	// sif is the path of the SIF to copy; empty for images with layers.
	sif string
}

// Stage brings the image of a reference for a run on nodes of that architecture (in Go's spelling;
// empty means the Converter's), or finds it in place, and returns the inputs' fields that describe
// it. holder pins it in the cache; it may be empty. item shows the progress.
func (im *Images) Stage(ctx context.Context, run codalab.RunBundle, reference, architecture string, holder cache.Holder, item *transfer.Item) (spool.Inputs, error) {
	im.begin()
	if reference == "" {
		return spool.Inputs{}, &transfer.Error{What: "image", Err: errors.New("none was asked for, and there is no default: use --request-docker-image")}
	}
	if isSIF(reference) {
		return im.stageSIF(ctx, run, reference, architecture, item)
	}
	ref, err := source.ParseReference(reference)
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
	im.References.add(f.Image)
	return spool.Inputs{SIF: sif, PinnedReference: ShortReference(f.PinnedReference())}, nil
}

// resolveOrKept resolves a reference by the registry, or by the kept images if the registry does
// not answer.
func (im *Images) resolveOrKept(ctx context.Context, owner string, ref source.Reference, architecture string, item *transfer.Item) (found, error) {
	k, kept, err := im.Kept.findReference(ref, im.architecture(architecture))
	if im.Offline && ref.Kind() == source.InRegistry {
		if err == nil && !kept {
			err = &transfer.Error{Err: fmt.Errorf("image %q: it is not among the kept images for linux/%s, and this site asks no registry: ask its operator for cl-bridge image pull", ref, im.architecture(architecture))}
		}
		return asKept(ref, k), err
	}
	// If the kept image needs credentials, the registry decides whether the owner may have it.
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

func asKept(ref source.Reference, k KeptImage) found {
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
		host, _, _ := strings.Cut(ref.Full(), "/")
		item.Asks(host)
	} else {
		from.Closed = func(f *os.File) bool { return !im.Cache.MayShare(f) }
	}
	img, err := im.resolver.resolve(ctx, owner, question{ref.Full(), from.Architecture, login}, ref, from)
	item.Asks("")
	if err != nil {
		return found{}, err
	}
	f := found{Image: img, key: im.key(img), from: &from, private: img.Private, closed: img.Closed}
	k, kept, err := im.Kept.findReference(ref, f.Architecture)
	if err == nil && kept && k.Digest == f.Digest && k.Private == f.private && (k.Closed || !f.closed) {
		f.key, f.kept, f.closed = k.Key, true, k.Closed // even if it was converted with other settings
	}
	return f, nil
}

// architecture returns the given one, or that of the Converter's source.
func (im *Images) architecture(given string) string {
	return cmp.Or(given, im.Converter.Source.Architecture, runtime.GOARCH)
}

var errNotKept = errors.New("its SIF is not in the cache any more: pull it again")

// get returns the path of an image's SIF, and its key. bundle waits for it. w names its holder, and
// the owner whose quota it counts against.
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
	if f.sif != "" {
		w.Key, w.Resume, fill = f.key, false, im.copySIF
	}
	sif, err = im.transfers.Get(ctx, im.Cache, w, bundle, item, func(ctx context.Context, t *transfer.Transfer, tmp string) error {
		return t.InTurn(ctx, func() error { return fill(ctx, f, t, tmp) })
	})
	return sif, w.Key, err
}

// convert makes the SIF of an image. An earlier try may have left some of its layers.
func (im *Images) convert(ctx context.Context, f found, t *transfer.Transfer, tmp string) error {
	if err := errors.Join(im.checkSpace(tmp), os.RemoveAll(tmp)); err != nil { // of a killed fill
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
		return &transfer.Error{What: "image " + ShortReference(f.PinnedReference()), Err: &transfer.SizeError{Size: size, Most: im.MaxImageBytes}}
	}
	return nil
}

// checkSpace refuses to make an image on a disk with too little free space. The space that an image
// needs is not known beforehand.
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

// imageError returns any error about an image as an Error. A source.ImageError is already a
// sentence with the image's reference. If it is transient, a registry, the network or the disk is in
// trouble. Other errors may report an outage themselves, such as a Slurm that does not run the
// conversion now.
func imageError(err error) error {
	if own, ok := errors.AsType[*transfer.Error](err); ok {
		return own
	}
	if refused, ok := errors.AsType[*source.ImageError](err); ok {
		return &transfer.Error{Err: refused, Retry: refused.Transient(), IsOutage: refused.Transient(), After: refused.RetryAfter}
	}
	var site interface{ Outage() bool }
	outage := transfer.IsDiskTrouble(err) || errors.As(err, &site) && site.Outage()
	return &transfer.Error{What: "image", Err: err, Retry: true, IsOutage: outage}
}

// ShortReference returns a full or pinned reference as people write it, without Docker Hub's parts. A
// pinned one may be requested again (codalab/worker/docker_image_manager.py: _image_availability_state
// reports RepoDigests; bundle_util.py: mimic_bundles asks for the reported one).
func ShortReference(full string) string {
	short := strings.TrimPrefix(strings.TrimPrefix(full, "index."), "docker.io/")
	if rest, ok := strings.CutPrefix(short, "library/"); ok && !strings.Contains(rest, "/") {
		return rest
	}
	return short
}

func (im *Images) key(img source.Image) cache.Key {
	return cache.Key{Kind: sifKind, ID: img.Digest + " " + img.Architecture + " " + im.Converter.Settings()}
}

const sifKind = "sif"

// Key has the parts of the key of a SIF in the cache.
type Key struct {
	// Digest is that of the platform's manifest. Settings are those of the conversion.
	Digest, Architecture, Settings string
}

// ParseKey reads the key of a SIF. It returns false for other entries of the cache.
func ParseKey(key cache.Key) (img Key, ok bool) {
	if key.Kind != sifKind {
		return img, false
	}
	img.Digest, img.Settings, _ = strings.Cut(key.ID, " ")
	img.Architecture, img.Settings, ok = strings.Cut(img.Settings, " ")
	return img, ok
}
