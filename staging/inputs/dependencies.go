package inputs

import (
	"cmp"
	"context"
	"errors"
	"path"
	"strings"
	"sync"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/fetch"
	"github.com/cl-slurm/cl-slurm/staging/results"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// Dependencies brings the dependencies of bundles to the shared disk. It is safe for
// concurrent use; its exported fields are not changed once it is used.
type Dependencies struct {
	Contents fetch.Source
	Cache    *cache.Cache
	// Identity tells which bundle has a UUID now. It may be nil: then all bundles of a UUID count as
	// one.
	Identity func(ctx context.Context, bundle string) (codalab.Identity, error)
	// Public reports whether anyone may read a bundle on the server: then all members of the
	// cache's group may read what the cache has of it. It may be nil: then this user alone
	// may read the downloads.
	Public func(ctx context.Context, bundle string) (bool, error)
	// Limits bounds what one dependency may hold; so does what the cache's disk has free
	// when its download begins.
	Limits tarstream.Limits
	// LowWater is how much of a disk of this size a download has to leave free; nil for
	// maxReserve only.
	LowWater func(total int64) int64
	// AtOnce is how many downloads there are at a time, whatever the number of bundles; at
	// least 1. Owners take turns (package turns).
	AtOnce int
	// Pace bounds the downloads; nil does not.
	Pace *transfer.Pace
	// Links finds the data of links; nil has it downloaded like any other.
	Links *Links
	// Store is the server's own store, if this bridge shares its disk; else nil.
	Store *results.Store
	// Layout is the shared directory, which keeps some bundles' results; empty if there is
	// none.
	Layout spool.Layout

	once      sync.Once
	transfers *transfer.Registry
	asking    *turns.Turns
	listings  listings
}

// questionsAtOnce is how many bundles at a time ask the server where their data is.
const questionsAtOnce = 16

func (d *Dependencies) begin() {
	d.once.Do(func() {
		d.transfers = transfer.NewRegistry(d.AtOnce)
		d.asking = turns.New(questionsAtOnce)
	})
}

// Name is what sentences call a dependency.
func Name(d codalab.Dependency) string {
	parent := path.Join(cmp.Or(d.ParentName, d.ParentUUID), d.ParentPath)
	if child := path.Clean(d.ChildPath); child != "." {
		return "dependency " + child + " (" + parent + ")"
	}
	return "dependency " + parent
}

// Stage finds a dependency of a run where it lies, or brings it in. holder pins it in the
// cache; it may be empty. item shows how far it is.
func (d *Dependencies) Stage(ctx context.Context, run codalab.RunBundle, dep codalab.RunDependency, holder cache.Holder, item *transfer.Item) (spool.Dependency, error) {
	d.begin()
	part := target(dep.Dependency)
	what := "dependency " + dep.ChildPath + " (" + part.String() + ")"
	parent, err := d.identify(ctx, run.OwnerID, dep.ParentUUID)
	if err != nil {
		return spool.Dependency{}, transfer.ServerError(what, err)
	}
	// Kept results come first: the server has only their listing.
	if kept, found, err := results.FindKept(d.Layout, what, parent, part); found || err != nil {
		return spool.Dependency{ChildPath: dep.ChildPath, Source: kept, InPlace: found}, err
	}
	if found, ok, err := d.findStored(dep, parent, part); ok || err != nil {
		return found, err
	}
	if d.Links != nil {
		leave, err := d.asking.Take(ctx, turns.Party{Owner: run.OwnerID})
		if err != nil {
			return spool.Dependency{}, err
		}
		found, ok, err := d.Links.findDependency(ctx, run.OwnerID, dep.Dependency)
		leave()
		if ok || err != nil {
			return found, err
		}
	}
	w := cache.Want{
		Key: keyOf(parent, part), Resume: true, Private: d.isPrivate(ctx, dep.ParentUUID),
		Owner: run.OwnerID, Holder: holder,
	}
	source, err := d.transfers.Get(ctx, d.Cache, w, run.UUID, item, func(ctx context.Context, t *transfer.Transfer, tmp string) error {
		return d.download(ctx, parent, part, t, tmp)
	})
	if err != nil {
		return spool.Dependency{}, downloadError(what, err)
	}
	return spool.Dependency{ChildPath: dep.ChildPath, Source: source}, nil
}

// identify asks the server which bundle a dependency is on now. Somebody may have deleted the one whose
// contents are here, and somebody else made another one of its UUID.
func (d *Dependencies) identify(ctx context.Context, owner, bundle string) (codalab.Identity, error) {
	if d.Identity == nil {
		return codalab.Identity{UUID: bundle}, nil
	}
	leave, err := d.asking.Take(ctx, turns.Party{Owner: owner})
	if err != nil {
		return codalab.Identity{}, err
	}
	defer leave()
	return d.Identity(ctx, bundle)
}

// keyOf is the cache's key for a part of a bundle.
func keyOf(parent codalab.Identity, part codalab.Target) cache.Key {
	key := cache.Key{Kind: "bundle", ID: part.String()}
	if parent != (codalab.Identity{UUID: part.BundleUUID}) {
		key.ID += " of " + parent.Digest()
	}
	return key
}

func (d *Dependencies) findStored(dep codalab.RunDependency, parent codalab.Identity, part codalab.Target) (stored spool.Dependency, found bool, err error) {
	if d.Store == nil {
		return stored, false, nil
	}
	stored, found, err = d.Store.Dependency("dependency "+dep.ChildPath+" ("+dep.ParentUUID+")", dep)
	if !found || err != nil {
		return stored, found, err
	}
	head := func() (string, error) { return d.Store.ListingHead(*dep.Location), nil }
	if err := results.CheckListing(d.Layout, parent, part, head); err != nil {
		return stored, true, &transfer.Error{What: Name(dep.Dependency), Err: err}
	}
	return stored, true, nil
}

// isPrivate reports whether only this user may read a bundle in a cache that a group shares:
// unless the server says that anyone may.
func (d *Dependencies) isPrivate(ctx context.Context, bundle string) bool {
	if d.Public == nil {
		return true
	}
	public, err := d.Public(ctx, bundle)
	return err != nil || !public
}

func (d *Dependencies) download(ctx context.Context, parent codalab.Identity, part codalab.Target, t *transfer.Transfer, tmp string) error {
	head := func() (string, error) { return d.listingHead(ctx, t, part.BundleUUID) }
	if err := results.CheckListing(d.Layout, parent, part, head); err != nil {
		return err
	}
	bound, err := d.bound(tmp)
	if err != nil {
		return err
	}
	return bound.explain(fetch.Fetch{
		From: d.Contents, Target: part, Limits: bound.Limits, Reader: d.Pace.Reader, Turn: t.InTurn, Progress: t.SetBytes,
	}.To(ctx, tmp))
}

// target is the part of a bundle that a dependency shows.
func target(d codalab.Dependency) codalab.Target {
	return codalab.Target{BundleUUID: d.ParentUUID, Subpath: strings.Trim(path.Clean("/"+d.ParentPath), "/")}
}

func downloadError(what string, err error) error {
	var answer *codalab.Error
	if errors.As(err, &answer) {
		return transfer.ServerError(what, err)
	}
	for _, final := range []error{tarstream.ErrUnsafe, tarstream.ErrTooLarge, fetch.ErrLink, results.ErrRemoved} {
		if errors.Is(err, final) {
			return &transfer.Error{What: what, Err: err}
		}
	}
	return &transfer.Error{What: what, Err: err, Retry: true, IsOutage: transfer.IsDiskTrouble(err) || errors.Is(err, fetch.ErrBroken)}
}
