package engineimages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sharedcall"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// Images brings images into an engine's store. It is safe for concurrent use. Its exported fields
// must not change after its first use.
type Images struct {
	Engine Engine
	// Source asks registries for the size of an image, with this user's logins. The engine pulls
	// with its own settings and logins.
	Source source.Source
	// MaxImageBytes limits the image that a registry sends; 0 means no limit, and then only the
	// engine asks the registry.
	MaxImageBytes int64
	// MaxStoreBytes limits the unpacked sum of the images that all Images with the same RecordsPath have
	// brought; 0 means no limit. An image that shares layers with another counts in full, as in
	// CodaLab's own worker.
	MaxStoreBytes int64
	// Remember is the time for which a pulled image counts as the newest of its reference; with 0, the
	// registry is asked for each bundle. An image with a pinned reference is pulled once.
	Remember time.Duration
	// AtOnce limits the simultaneous pulls; at least 1. Owners take turns.
	AtOnce int
	// RecordsPath is the path of the file that records the images that were brought. It is on a disk of
	// this host, in an existing directory. All Images of one engine and user on a host must have
	// the same one.
	RecordsPath string
	// Home identifies this worker's holders for the other Images with the same RecordsPath.
	Home string
	// Over returns those of one home's holders that need nothing any more. Without it, no holder
	// counts as over.
	Over func(ctx context.Context, home string, holders []cache.Holder) (map[cache.Holder]bool, error)
	// Now reads the clock.
	Now func() time.Time

	once      sync.Once
	transfers *transfer.Registry
	calls     sharedcall.Group[storeImage]

	mu    sync.Mutex           // guards fresh, and saves the callers of one process from waiting for the file's lock
	fresh map[string]time.Time // the time until which the image of a reference counts as the newest
}

func (im *Images) begin() {
	im.once.Do(func() {
		im.transfers = transfer.NewRegistry(max(im.AtOnce, 1))
		im.fresh = map[string]time.Time{}
	})
}

// Stage brings the image of a reference for a run, and returns the inputs' fields that describe it:
// its pinned reference, or the engine's id for an image without a digest, and no SIF. holder
// protects the image from Trim; it may be empty. item shows the progress. The architecture is the
// engine's own, so the argument is ignored. Errors are *transfer.Error.
func (im *Images) Stage(ctx context.Context, run codalab.RunBundle, reference, _ string, holder cache.Holder, item *transfer.Item) (spool.Inputs, error) {
	im.begin()
	w, err := im.parse(reference)
	if err != nil {
		return spool.Inputs{}, err
	}
	t, leave := im.transfers.Join(w.full, turns.Party{Owner: run.OwnerID, Bundle: run.UUID})
	defer leave()
	item.Follow(t)
	got, err := im.calls.Do(ctx, w.full, func(ctx context.Context) (storeImage, error) { return im.bring(ctx, w, t) })
	if err == nil {
		err = im.hold(ctx, got, holder)
	}
	if err != nil {
		return spool.Inputs{}, w.error(err)
	}
	item.Arrived()
	return spool.Inputs{PinnedReference: got.pinnedReference(w)}, nil
}

// wanted is the image that a bundle asks for.
type wanted struct {
	ref source.Reference
	// full is the full reference: with a registry, and a tag or a digest. given is the reference for
	// the engine's client, which also finds local images without a registry.
	full, given string
}

func (im *Images) parse(reference string) (wanted, error) {
	if reference == "" {
		return wanted{}, &transfer.Error{What: "image", Err: errors.New("none was asked for, and there is no default: use --request-docker-image")}
	}
	ref, err := source.ParseReference(reference)
	if err != nil {
		return wanted{}, &transfer.Error{Err: err}
	}
	if ref.Kind() != source.InRegistry {
		return wanted{}, &transfer.Error{What: "image " + reference, Err: fmt.Errorf("%s runs images of registries and of its own store only", im.Engine.name())}
	}
	w := wanted{ref: ref, full: strings.Replace(ref.Full(), "index.docker.io/", "docker.io/", 1), given: strings.TrimPrefix(reference, "docker://")}
	if !strings.Contains(w.given, ":") { // codalab/worker/docker_image_manager.py: get
		w.given += ":latest"
	}
	return w, nil
}

// error returns any error as a *transfer.Error.
func (w wanted) error(err error) error {
	if own, ok := errors.AsType[*transfer.Error](err); ok {
		return own
	}
	if large, ok := errors.AsType[*transfer.SizeError](err); ok {
		return &transfer.Error{What: "image " + w.ref.String(), Err: large}
	}
	return &transfer.Error{What: "image " + w.ref.String(), Err: err, Retry: true, IsOutage: transfer.IsDiskTrouble(err)}
}

// isPinned reports whether the reference has a digest, and so always means the same image.
func (w wanted) isPinned() bool { return strings.Contains(w.full, "@") }

// bring makes sure that the engine has the image: the newest of that reference or, if the pull fails,
// one that it already has.
func (im *Images) bring(ctx context.Context, w wanted, t *transfer.Transfer) (storeImage, error) {
	if w.isPinned() || im.isFresh(w) {
		if have, err := im.Engine.inspect(ctx, w.full); err == nil {
			return im.touch(ctx, have)
		}
	}
	var got storeImage
	err := t.InTurn(ctx, func() (err error) {
		got, err = im.pull(ctx, w, t)
		return err
	})
	var large *transfer.SizeError
	if err == nil || ctx.Err() != nil || errors.As(err, &large) {
		return got, err
	}
	for _, reference := range []string{w.full, w.given} {
		if have, inspectErr := im.Engine.inspect(ctx, reference); inspectErr == nil {
			return im.touch(ctx, have)
		}
	}
	return storeImage{}, err
}

// pull pulls the image. It refuses one that is too large.
func (im *Images) pull(ctx context.Context, w wanted, t *transfer.Transfer) (storeImage, error) {
	if err := im.Source.CheckPlace(ctx, w.ref); err != nil {
		return storeImage{}, err
	}
	layers, askErr := im.askSize(ctx, w)
	var large *transfer.SizeError
	if errors.As(askErr, &large) || ctx.Err() != nil {
		return storeImage{}, askErr
	}
	before, err := im.Engine.list(ctx)
	if err != nil {
		return storeImage{}, err
	}
	if err := im.pullTwice(ctx, w, newProgress(t, layers)); err != nil {
		return storeImage{}, err
	}
	got, err := im.Engine.inspect(ctx, w.full)
	if err != nil {
		return storeImage{}, err
	}
	_, had := before[got.ID]
	if askErr != nil && !had && got.Size > im.MaxImageBytes { // the registry did not tell the size
		err := im.Engine.remove(ctx, w.full)
		return storeImage{}, errors.Join(&transfer.SizeError{Size: got.Size, Most: im.MaxImageBytes}, err)
	}
	return im.note(ctx, w, got, before)
}

// pullTwice pulls the image, and again if the engine breaks off. If the engine breaks off both times, and the
// registry answers, the image is at fault.
func (im *Images) pullTwice(ctx context.Context, w wanted, out io.Writer) error {
	var broken *brokenOffError
	err := im.Engine.pull(ctx, w, out)
	if errors.As(err, &broken) {
		err = im.Engine.pull(ctx, w, out)
	}
	if !errors.As(err, &broken) {
		return err
	}
	if _, askErr := im.Source.Resolve(ctx, w.ref); askErr != nil {
		return err
	}
	return &transfer.Error{What: "image " + w.ref.String(), Err: fmt.Errorf("%s fails at it, and answers otherwise: %w", im.Engine.name(), broken.error)}
}

func (im *Images) isFresh(w wanted) bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.Now().Before(im.fresh[w.full])
}

// pinnedReference returns a reference by which a run gets exactly this image.
func (i storeImage) pinnedReference(w wanted) string {
	repository := repositoryOf(w.full)
	for _, digest := range i.RepoDigests {
		if name := repositoryOf(digest); name == repository || strings.HasSuffix(repository, "/"+name) {
			return digest
		}
	}
	if len(i.RepoDigests) > 0 {
		return i.RepoDigests[0]
	}
	return i.ID
}

// repositoryOf returns a reference without its tag and digest.
func repositoryOf(reference string) string {
	name, _, _ := strings.Cut(reference, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name
}

// references returns all references of an image in its store.
func (i storeImage) references() []string { return slices.Concat(i.RepoTags, i.RepoDigests) }
