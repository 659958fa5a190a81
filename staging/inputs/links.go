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

// Links finds the data of bundles that are links (cl upload --link) where it lies, for runs
// to use it there. It is safe for concurrent use.
//
// A run may use a link if its data lies below a root that the site lists, and the run's
// owner may read it: for the bridge's own user, what this process may read decides; for
// others, what the root's Users say. What counts is where the path leads with its
// symbolic links followed, and the worker binds it only while there are none.
type Links struct {
	// Roots are the directories below which links may lead.
	Roots []LinkRoot
	// Hidden are files and directories that a link must neither lead into nor contain: the
	// bridge's own.
	Hidden  []string
	Catalog Catalog
	// Records is where the record of a bundle that is a link is.
	Records func(bundle string) string
	// Now is the clock.
	Now func() time.Time

	fingerprints fingerprints
	recording    sync.Mutex             // of the records
	ownID        atomic.Pointer[string] // that of the bridge's own user, once it is known
}

// LinkRoot is a directory below which links may lead.
type LinkRoot struct {
	Path string
	// Users are those beside the bridge's own whose runs may use what lies there: CodaLab's
	// names or ids, or "*" for everybody.
	Users []string
}

// Catalog knows bundles and users. *client.Client is one.
type Catalog interface {
	Bundle(ctx context.Context, uuid string, include ...string) (client.BundleInfo, error)
	User(ctx context.Context) (client.User, error)
	UserByID(ctx context.Context, id string) (client.User, error)
}

// findDependency finds a dependency where it lies, if its parent is a link.
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

// RootsOf returns the roots whose data an owner's runs may use.
func (l *Links) RootsOf(ctx context.Context, owner string) ([]string, error) {
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
	for _, r := range l.Roots {
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

// Changed returns a sentence for the researcher about data of links that is no longer as it
// was when a run was staged; empty if none is known to have changed.
func (l *Links) Changed(ctx context.Context, inputs spool.Inputs) string {
	var sentences []string
	for _, d := range inputs.Dependencies {
		if d.Link == nil {
			continue
		}
		// The run was staged from there, so that is allowed.
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
