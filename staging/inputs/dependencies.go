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

// Dependencies brings the dependencies of bundles to the shared disk. It is safe for concurrent
// use. Its exported fields must not change after its first use.
type Dependencies struct {
	Contents fetch.Source
	Cache    *cache.Cache
	// Identity returns the identity of the bundle that now has a UUID. If it is nil, all bundles of
	// a UUID count as the same.
	Identity func(ctx context.Context, bundle string) (codalab.Identity, error)
	// Public reports whether anyone may read a bundle on the server. Then all members of the
	// cache's group may read its downloads. If Public is nil, only this user may read downloads.
	Public func(ctx context.Context, bundle string) (bool, error)
	// Limits returns the bounds of one dependency; nil means none. The free space of the cache's disk at the begin of
	// the download limits it, too.
	Limits func() tarstream.Limits
	// LowWater returns the bytes that a download must leave free on a disk of this size; nil means
	// only maxReserve.
	LowWater func(total int64) int64
	// AtOnce limits the simultaneous downloads of all bundles until SetAtOnce does; at least 1. Owners take turns
	// (package turns).
	AtOnce int
	// Pace limits the speed of the downloads; nil means no limit.
	Pace *transfer.Pace
	// Links finds the data of links; if it is nil, that data is downloaded.
	Links *Links
	// Store is the server's own store, if this bridge shares its disk, and otherwise nil.
	Store *results.Store
	// Layout is the shared directory, which keeps some bundles' results; empty means that there is
	// none.
	Layout spool.Layout

	once      sync.Once
	transfers *transfer.Registry
	asking    *turns.Turns
	listings  listings
}

// questionsAtOnce limits the bundles that ask the server for the place of their data at the same
// time.
const questionsAtOnce = 16

func (d *Dependencies) begin() {
	d.once.Do(func() {
		d.transfers = transfer.NewRegistry(d.AtOnce)
		d.asking = turns.New(questionsAtOnce)
	})
}

// SetAtOnce sets the limit of simultaneous downloads. Those under way go on.
func (d *Dependencies) SetAtOnce(n int) {
	d.begin()
	d.transfers.SetTurns(n)
}

// AtOnceNow returns the limit of simultaneous downloads.
func (d *Dependencies) AtOnceNow() int {
	d.begin()
	return d.transfers.Turns()
}

// Name returns the name of a dependency for sentences.
func Name(d codalab.Dependency) string {
	parent := path.Join(cmp.Or(d.ParentName, d.ParentUUID), d.ParentPath)
	if child := path.Clean(d.ChildPath); child != "." {
		return "dependency " + child + " (" + parent + ")"
	}
	return "dependency " + parent
}

// Stage finds a dependency of a run on the shared disk, or downloads it. holder pins it in the
// cache; it may be empty. item shows the progress.
func (d *Dependencies) Stage(ctx context.Context, run codalab.RunBundle, dep codalab.RunDependency, holder cache.Holder, item *transfer.Item) (spool.Dependency, error) {
	d.begin()
	part := target(dep.Dependency)
	what := "dependency " + dep.ChildPath + " (" + part.String() + ")"
	parent, err := d.identify(ctx, run.OwnerID, dep.ParentUUID)
	if err != nil {
		return spool.Dependency{}, transfer.ServerError(what, err)
	}
	// Kept results come first, because the server has only their listing.
	if kept, found, err := results.FindKeptResults(d.Layout, what, parent, part); found || err != nil {
		return spool.Dependency{ChildPath: dep.ChildPath, Source: kept, InPlace: found}, err
	}
	if found, ok, err := d.findStored(dep, parent, part); ok || err != nil {
		return found, err
	}
	if d.Links.inUse() {
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
	return spool.Dependency{ChildPath: dep.ChildPath, Source: source, Digest: d.digest(source)}, nil
}

// digest returns the digest of a download, which the cache has computed; empty if it is not known.
func (d *Dependencies) digest(source string) string {
	switch digest, isDir := d.Cache.DigestOf(source); {
	case digest == "":
		return ""
	case isDir:
		return codalab.TreeDigest + digest
	default:
		return codalab.FileDigest + digest
	}
}

// identify asks the server for the identity of a dependency's bundle. The bundle whose contents are
// here may have been deleted, and another may have its UUID now.
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

// keyOf returns the cache's key for a part of a bundle.
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

// isPrivate reports whether only this user may read a bundle's download in a group's cache. It
// returns false only if the server says that anyone may read the bundle.
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

// target returns the part of a bundle that a dependency shows.
func target(d codalab.Dependency) codalab.Target {
	return codalab.Target{BundleUUID: d.ParentUUID, Subpath: strings.Trim(path.Clean("/"+d.ParentPath), "/")}
}

func downloadError(what string, err error) error {
	if _, ok := errors.AsType[*codalab.Error](err); ok {
		return transfer.ServerError(what, err)
	}
	for _, final := range []error{tarstream.ErrUnsafe, tarstream.ErrTooLarge, fetch.ErrLink, results.ErrRemoved} {
		if errors.Is(err, final) {
			return &transfer.Error{What: what, Err: err}
		}
	}
	return &transfer.Error{What: what, Err: err, Retry: true, IsOutage: transfer.IsDiskTrouble(err) || errors.Is(err, fetch.ErrBroken)}
}
