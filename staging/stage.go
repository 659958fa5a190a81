package staging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/fetch"
)

// Contents is where bundles' contents come from and go to. *client.Client is
// one.
type Contents interface {
	ContentsInfo(ctx context.Context, t codalab.Target, depth int) (codalab.TargetInfo, error)
	OpenContents(ctx context.Context, t codalab.Target, r *client.Range) (*client.Contents, error)
	UploadContents(ctx context.Context, bundle string, o client.UploadOptions, body io.Reader) error
}

// Stager brings bundles' inputs into a cache on the shared disk. It is safe
// for concurrent use; its exported fields are not changed once it is used.
type Stager struct {
	Contents Contents
	Cache    *cache.Cache
	// Images brings the images in. Whoever stages no whole bundle needs none.
	Images *Images
	// Holder names a bundle as who needs its inputs in the cache. It may be
	// nil: nothing is pinned then.
	Holder func(bundle string) cache.Holder
	// Public says whether anyone may read a bundle on the server, so that a
	// group may share what the cache has of it. It may be nil: nothing is shared
	// then but images, which are pulled without any credential.
	Public func(ctx context.Context, bundle string) (bool, error)
	// Limits bounds what one dependency may hold; so does what the cache's disk
	// has free when its download begins.
	Limits tarstream.Limits
	// LowWater is how much of a disk of this size a download has to leave free;
	// nil for little.
	LowWater func(total int64) int64
	// Downloads is how many dependencies are brought in at a time, whatever the
	// number of bundles that are staged; 0 means DefaultDownloads.
	Downloads int
	// Pace bounds the dependencies' downloads; nil does not. Images have their
	// own, whose registry can be given the Pace's Transport.
	Pace *Pace
	// InPlace finds the data of links; where it is nil, that is fetched from
	// the server like any other.
	InPlace *InPlace
	// Store is the server's own store, where this bridge shares its disk; nil
	// otherwise.
	Store *ServerStore
	// Layout is the shared directory, which keeps some bundles' results; empty
	// where there is none.
	Layout spool.Layout

	once      sync.Once
	downloads turns
	board     board
	listings  listings
	asking    *semaphore.Weighted
}

// questionsAtOnce is how many bundles at a time ask the server where their data
// is.
const questionsAtOnce = 16

// DefaultDownloads is how many downloads there are at a time.
const DefaultDownloads = 4

// Error is why something could not be brought in.
type Error struct {
	// What names it as the researcher did: an image, or a dependency. It is
	// empty where Err does.
	What string
	Err  error
	// Retry is set when another try may succeed.
	Retry bool
	// Away is set when that is because something is away that others need too,
	// the server, a registry or room on the disk, and which comes back.
	Away bool
	// After is how long from now whoever refused wants to be left alone; 0 where
	// it did not say.
	After time.Duration
}

// Error says what could not be brought in and why.
func (e *Error) Error() string {
	if e.What == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s: %v", e.What, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient says whether another try may succeed.
func (e *Error) Transient() bool { return e.Retry }

// RetryAfter says how long from now another try has no sense.
func (e *Error) RetryAfter() time.Duration { return e.After }

// Outage says whether it waits for something that others wait for too.
func (e *Error) Outage() bool { return e.Away }

// Stage brings the image of that name, for nodes of that architecture (in Go's
// spelling; empty is the bridge's own), and the dependencies of a run in, side by
// side, and returns where they are. It blocks until all is there, or one cannot be had:
// what fails for good ends the others, what may pass does not. progress is
// called now and then with one sentence, from one goroutine at a time.
//
// Bundles that want the same share one download, and hear of it alike. Any
// number of them may be staged at once.
func (s *Stager) Stage(ctx context.Context, run codalab.RunBundle, image, architecture string, progress func(string)) (spool.Inputs, error) {
	s.begin()
	inputs := spool.Inputs{Dependencies: make([]spool.Dependency, len(run.Dependencies))}
	parts := []*part{{name: "image " + image, image: true}}
	for _, d := range run.Dependencies {
		parts = append(parts, &part{name: nameOf(d.Dependency)})
	}
	stop := make(chan struct{})
	var talk errgroup.Group
	talk.Go(func() error {
		tell(parts, s.taken, progress, stop)
		return nil
	})
	err := s.all(ctx, len(parts), func(ctx context.Context, i int) (err error) {
		if i == 0 {
			var got spool.Inputs
			got, err = s.image(ctx, run, image, architecture, parts[0])
			inputs.Image, inputs.ImageDigest, inputs.ImageFile = got.Image, got.ImageDigest, got.ImageFile
			return err
		}
		inputs.Dependencies[i-1], err = s.dependency(ctx, run, run.Dependencies[i-1], parts[i])
		return err
	})
	close(stop)
	if err := errors.Join(err, talk.Wait()); err != nil {
		if full(err) && s.Holder != nil {
			// Bundles that hold a part each, and wait for the rest, would wait for
			// one another. Nothing of this one is in use yet.
			err = errors.Join(err, s.Cache.Unpin(ctx, s.Holder(run.UUID)))
		}
		return spool.Inputs{}, err
	}
	return inputs, nil
}

// begin makes what the exported fields say.
func (s *Stager) begin() {
	s.once.Do(func() {
		n := cmp.Or(s.Downloads, DefaultDownloads)
		s.downloads.free = n
		s.asking = semaphore.NewWeighted(questionsAtOnce)
	})
}

// taken is how many images, or dependencies, are being brought in.
func (s *Stager) taken(images bool) int {
	if images {
		return s.Images.turns.taken()
	}
	return s.downloads.taken()
}

// all brings n things, some at a time. Of several failures it returns one that
// is final, if there is one.
func (s *Stager) all(ctx context.Context, n int, bring func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(1 + cmp.Or(s.Downloads, DefaultDownloads))
	passing := make([]error, n)
	for i := range n {
		g.Go(func() error {
			err := bring(ctx, i)
			var e *Error
			if errors.As(err, &e) && e.Retry {
				passing[i] = err
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, err := range passing {
		if err != nil {
			return err
		}
	}
	return nil
}

// nameOf is what a dependency is called in sentences.
func nameOf(d codalab.Dependency) string {
	parent := path.Join(cmp.Or(d.ParentName, d.ParentUUID), d.ParentPath)
	if child := path.Clean(d.ChildPath); child != "." {
		return "dependency " + child + " (" + parent + ")"
	}
	return "dependency " + parent
}

// Changed says in a sentence for the researcher which of the data that is used
// in place is no longer as it was when it was staged; empty where none is.
func (s *Stager) Changed(ctx context.Context, inputs spool.Inputs) string {
	if s.InPlace == nil {
		return ""
	}
	return s.InPlace.Changed(ctx, inputs)
}

// dependency finds a dependency where it lies, or brings it in.
func (s *Stager) dependency(ctx context.Context, run codalab.RunBundle, d codalab.RunDependency, p *part) (spool.Dependency, error) {
	// Results that are kept here come first: the server has but their listing.
	if source, kept, err := s.kept(d.Dependency, target(d.Dependency)); kept || err != nil {
		return spool.Dependency{ChildPath: d.ChildPath, Source: source, InPlace: kept}, err
	}
	if dep, found, err := s.stored(d); found {
		return dep, err
	}
	if s.InPlace != nil {
		if err := s.asking.Acquire(ctx, 1); err != nil {
			return spool.Dependency{}, err
		}
		dep, linked, err := s.InPlace.dependency(ctx, run.OwnerID, d.Dependency)
		s.asking.Release(1)
		if linked || err != nil {
			return dep, err
		}
	}
	source, err := s.copied(ctx, run, d.Dependency, p)
	return spool.Dependency{ChildPath: d.ChildPath, Source: source}, err
}

// stored finds a dependency in the server's own store.
func (s *Stager) stored(d codalab.RunDependency) (dep spool.Dependency, found bool, err error) {
	if s.Store == nil {
		return dep, false, nil
	}
	dep, found, err = s.Store.dependency(d)
	if !found || err != nil {
		return dep, found, err
	}
	if err := s.checkListing(target(d.Dependency), func() (string, error) { return s.Store.listingIn(*d.Location), nil }); err != nil {
		return dep, true, &Error{What: nameOf(d.Dependency), Err: err}
	}
	return dep, true, nil
}

// copied brings the target of a dependency in, whole or the part that was
// asked for.
func (s *Stager) copied(ctx context.Context, run codalab.RunBundle, d codalab.Dependency, p *part) (string, error) {
	target := target(d)
	w := cache.Want{Key: cache.Key{Kind: "bundle", ID: target.String()}, Resume: true, Private: s.private(ctx, d.ParentUUID)}
	source, err := s.get(ctx, run, w, p, func(ctx context.Context, to *download, tmp string) error {
		return s.fetch(ctx, target, to, tmp)
	})
	if err != nil {
		return "", dependencyError("dependency "+d.ChildPath+" ("+target.String()+")", err)
	}
	return source, nil
}

// fetch downloads a target to tmp.
func (s *Stager) fetch(ctx context.Context, t codalab.Target, d *download, tmp string) error {
	if err := s.checkListing(t, func() (string, error) { return s.listingOf(ctx, d, t.BundleUUID) }); err != nil {
		return err
	}
	r, err := s.room(tmp)
	if err != nil {
		return err
	}
	return r.explain(fetch.Fetch{
		From: s.Contents, Target: t, Limits: r.Limits, Reader: s.Pace.Reader,
		Turn: func(ctx context.Context, do func() error) error { return s.downloads.do(ctx, d, do) },
		Progress: func(done, total int64) {
			d.done.Store(done)
			d.total.Store(total)
		},
	}.To(ctx, tmp))
}

// target is the part of a bundle that a dependency shows.
func target(d codalab.Dependency) codalab.Target {
	return codalab.Target{BundleUUID: d.ParentUUID, Subpath: strings.Trim(path.Clean("/"+d.ParentPath), "/")}
}

// dependencyError says what became of a download.
func dependencyError(what string, err error) error {
	var answer *codalab.Error
	if errors.As(err, &answer) {
		return serverError(what, err)
	}
	for _, final := range []error{tarstream.ErrUnsafe, tarstream.ErrTooLarge, fetch.ErrLink, errRemoved} {
		if errors.Is(err, final) {
			return &Error{What: what, Err: err}
		}
	}
	return &Error{What: what, Err: err, Retry: true, Away: troubled(err) || errors.Is(err, fetch.ErrBroken)}
}

// troubled says whether an error is the disk's, and no fault of what was asked for:
// it has no room, or does not answer as it should.
func troubled(err error) bool {
	var disk syscall.Errno
	return full(err) || errors.As(err, &disk) && !errors.Is(err, fs.ErrPermission)
}

// full says whether an error is that of a disk, or a cache, without room.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, cache.ErrFull)
}

// get returns the content that is wanted for a run, which fill makes if nobody
// has it yet.
func (s *Stager) get(ctx context.Context, run codalab.RunBundle, w cache.Want, p *part, fill fill) (string, error) {
	w.Owner, w.Holder = run.OwnerID, s.holder(run)
	return s.board.get(ctx, s.Cache, w, run.UUID, p, fill)
}

// holder is who has a run's inputs pinned; empty where nothing is.
func (s *Stager) holder(run codalab.RunBundle) cache.Holder {
	if s.Holder == nil {
		return ""
	}
	return s.Holder(run.UUID)
}
