package inputs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/sitepath"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// Links finds the data of bundles that are links (cl upload --link), so that runs can use it in
// place. It is safe for concurrent use.
//
// A run may use a link whose data is below one of the site's roots, if the run's owner may read it.
// For the bridge's own user, this process must be able to read it. For others, the root's Users
// decide. The path is checked after its symbolic links are followed, and the worker refuses to bind
// a path that has one.
type Links struct {
	// Roots are the directories to which links may lead.
	Roots []LinkRoot
	// Hidden are the bridge's own files and directories. A link must neither lead into them nor
	// contain them.
	Hidden  []string
	Catalog Catalog
	// Records returns the path of the record of a bundle that is a link.
	Records func(bundle string) string
	// Now reads the clock.
	Now func() time.Time

	replaced     atomic.Pointer[[]LinkRoot] // the roots of SetRoots; nil before
	fingerprints fingerprints
	recording    sync.Mutex             // guards the records
	ownID        atomic.Pointer[string] // of the bridge's own user, once it is known
}

// LinkRoot is a directory to which links may lead.
type LinkRoot struct {
	Path string
	// Users are CodaLab's names or ids of the users whose runs may use the root's data, in addition
	// to the bridge's own user. "*" means everybody.
	Users []string
}

// Catalog knows bundles and users. *client.Client is one.
type Catalog interface {
	Bundle(ctx context.Context, uuid string, include ...string) (client.BundleInfo, error)
	User(ctx context.Context) (codalab.User, error)
	UserByID(ctx context.Context, id string) (codalab.User, error)
}

// findDependency finds a dependency on the shared disk, if its parent is a link.
func (l *Links) findDependency(ctx context.Context, owner string, d codalab.Dependency) (found spool.Dependency, isLink bool, err error) {
	parent, err := l.Catalog.Bundle(ctx, d.ParentUUID)
	if err != nil {
		return found, false, transfer.ServerError("dependency "+d.ChildPath, err)
	}
	link := parent.Metadata.String("link_url")
	if link == "" {
		return found, false, nil
	}
	what := "dependency " + d.ChildPath + " (link to " + link + ")"
	roots, err := l.RootsOf(ctx, owner)
	if err != nil {
		return found, true, transfer.ServerError(what, err)
	}
	if format := parent.Metadata.String("link_format"); format != "" && format != "raw" {
		return found, true, &transfer.Error{What: what, Err: fmt.Errorf("its format is %q, and only raw links can be used in place", format)}
	}
	data, note, err := l.locateAndRecord(ctx, d.ParentUUID, sitepath.Place{Path: link, Below: d.ParentPath, Roots: roots, Hidden: l.Hidden})
	if err != nil {
		return found, true, &transfer.Error{What: what, Err: err, Retry: sitepath.IsTransient(err)}
	}
	if note != "" {
		note = "The data of " + what + " " + note + "."
	}
	return spool.Dependency{ChildPath: d.ChildPath, Source: data.path, InPlace: true, Link: &spool.Link{
		Bundle: d.ParentUUID, Path: link, Note: note, Fingerprint: data.Fingerprint,
	}}, true, nil
}

// SetRoots replaces the roots. Runs that have been staged keep their data.
func (l *Links) SetRoots(roots []LinkRoot) { l.replaced.Store(&roots) }

func (l *Links) roots() []LinkRoot {
	if roots := l.replaced.Load(); roots != nil {
		return *roots
	}
	return l.Roots
}

// inUse reports whether there is a root. Without one the server is not asked about any link.
func (l *Links) inUse() bool { return l != nil && len(l.roots()) > 0 }

// RootsOf returns the roots whose data an owner's runs may use.
func (l *Links) RootsOf(ctx context.Context, owner string) ([]string, error) {
	if !l.inUse() {
		return nil, nil
	}
	own, err := l.ownUser(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{"*", owner}
	if own != owner {
		u, err := l.Catalog.UserByID(ctx, owner)
		if err != nil {
			return nil, err
		}
		names = append(names, u.UserName)
	}
	var roots []string
	for _, r := range l.roots() {
		if own == owner || slices.ContainsFunc(r.Users, func(u string) bool { return slices.Contains(names, u) }) {
			roots = append(roots, r.Path)
		}
	}
	return roots, nil
}

func (l *Links) ownUser(ctx context.Context) (string, error) {
	if id := l.ownID.Load(); id != nil {
		return *id, nil
	}
	u, err := l.Catalog.User(ctx)
	if err != nil {
		return "", err
	}
	l.ownID.Store(&u.ID)
	return u.ID, nil
}

// Changed returns sentences for the researcher about links whose data has changed since the run was
// staged. It returns "" if no change is known.
func (l *Links) Changed(ctx context.Context, inputs spool.Inputs) string {
	var sentences []string
	for _, d := range inputs.Dependencies {
		if d.Link == nil {
			continue
		}
		// The run was staged from there, so the place is allowed.
		place := sitepath.Place{Path: d.Source, Roots: []string{path.Dir(d.Source)}, Hidden: l.Hidden}
		now, err := l.fingerprints.locate(ctx, l.Now, place, reachOf(d.Link.Fingerprint))
		what := "The data of dependency " + d.ChildPath + " (link to " + d.Link.Path + ") "
		switch {
		case errors.Is(err, fs.ErrNotExist), err != nil && !sitepath.IsTransient(err):
			sentences = append(sentences, what+"can no longer be read at the end of the bundle.")
		case err == nil && differ(d.Link.Fingerprint, now.Fingerprint):
			sentences = append(sentences, what+"changed while the bundle was under way: "+describeChange(d.Link.Fingerprint, now.Fingerprint)+".")
		}
	}
	return strings.Join(sentences, " ")
}
