package staging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/spool"
)

// InPlace finds the data of bundles that are links (cl upload --link) where it
// lies, for runs to use it there. It is safe for concurrent use.
//
// A link may be used when its data lies below a root that the site lists, and
// the run's owner may read it: where that is the bridge's own user, what this
// process may read says so; where it is another one, the root's table. All of
// that is judged by where the path leads in the end, with its symbolic links
// followed, and the worker binds it only while there are none.
type InPlace struct {
	// Roots are the directories below which links may lead.
	Roots []LinkRoot
	// Hidden are files and directories that no link may lead into, nor to what
	// they lie in: the bridge's own.
	Hidden  []string
	Catalog Catalog
	// Records is where the records of links are, by bundle.
	Records func(bundle string) string
	// Now is the clock.
	Now func() time.Time

	looks looks
	mu    sync.Mutex // guards the records, and:
	ownID string     // the bridge's own user's, once it is known
}

// LinkRoot is a directory below which links may lead.
type LinkRoot struct {
	Path string
	// Users are those other than the bridge's own whose runs may use what lies
	// there: CodaLab's names or ids, or "*" for everybody.
	Users []string
}

// Catalog tells of bundles and users. *client.Client is one.
type Catalog interface {
	Bundle(ctx context.Context, uuid string, include ...string) (client.BundleInfo, error)
	User(ctx context.Context) (client.User, error)
	UserByID(ctx context.Context, id string) (client.User, error)
}

// dependency finds a dependency where it lies, if its parent is a link.
func (p *InPlace) dependency(ctx context.Context, owner string, d codalab.Dependency) (found spool.Dependency, linked bool, err error) {
	parent, err := p.Catalog.Bundle(ctx, d.ParentUUID)
	if err != nil {
		return found, false, serverError("dependency "+d.ChildPath, err)
	}
	link := parent.Metadata.String("link_url")
	if link == "" {
		return found, false, nil
	}
	what := "dependency " + d.ChildPath + " (link to " + link + ")"
	roots, err := p.rootsOf(ctx, owner)
	if err != nil {
		return found, true, serverError(what, err)
	}
	if format := parent.Metadata.String("link_format"); format != "" && format != "raw" {
		return found, true, &Error{What: what, Err: fmt.Errorf("its format is %q, and only raw links can be used in place", format)}
	}
	at := spot{link: link, below: d.ParentPath, roots: roots, hidden: p.Hidden}
	where, note, err := p.seen(ctx, d.ParentUUID, at)
	if err != nil {
		return found, true, &Error{What: what, Err: err, Retry: transient(err)}
	}
	if note != "" {
		note = "The data of " + what + " " + note + "."
	}
	return spool.Dependency{ChildPath: d.ChildPath, Source: where.path, InPlace: true, Link: &spool.Link{
		Bundle: d.ParentUUID, Path: link, Note: note, Fingerprint: where.print,
	}}, true, nil
}

// serverError says what the server's answer was about. That it is in trouble, or
// does not know the bridge any more, is no fault of the bundle's.
func serverError(what string, err error) error {
	var answer *codalab.Error
	if errors.As(err, &answer) {
		away := answer.Transient() || answer.Status == http.StatusUnauthorized
		return &Error{What: what, Err: errors.New(answer.Message), Retry: away, Away: away}
	}
	return &Error{What: what, Err: err, Retry: true}
}

// rootsOf are the roots whose data an owner's runs may use.
func (p *InPlace) rootsOf(ctx context.Context, owner string) ([]string, error) {
	own, err := p.own(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{"*", owner}
	if own != owner {
		u, err := p.Catalog.UserByID(ctx, owner)
		if err != nil {
			return nil, err
		}
		names = append(names, u.UserName)
	}
	var roots []string
	for _, r := range p.Roots {
		if own == owner || slices.ContainsFunc(r.Users, func(u string) bool { return slices.Contains(names, u) }) {
			roots = append(roots, r.Path)
		}
	}
	return roots, nil
}

// own is the id of the bridge's own user.
func (p *InPlace) own(ctx context.Context) (string, error) {
	p.mu.Lock()
	id := p.ownID
	p.mu.Unlock()
	if id != "" {
		return id, nil
	}
	u, err := p.Catalog.User(ctx)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ownID = u.ID
	return u.ID, nil
}

// Changed says in a sentence for the researcher which data of links is no
// longer as it was when a run was staged; empty where none is known to have
// changed.
func (p *InPlace) Changed(ctx context.Context, inputs spool.Inputs) string {
	var said []string
	for _, d := range inputs.Dependencies {
		if d.Link == nil {
			continue
		}
		// It was staged from there: nothing else is to be asked.
		at := spot{link: d.Source, roots: []string{path.Dir(d.Source)}, hidden: p.Hidden, reach: reach(d.Link.Fingerprint)}
		now, err := p.looks.look(ctx, p.Now, at)
		what := "The data of dependency " + d.ChildPath + " (link to " + d.Link.Path + ") "
		switch {
		case errors.Is(err, fs.ErrNotExist), err != nil && !transient(err):
			said = append(said, what+"is not to be had any more at the end of the bundle.")
		case err == nil && differs(d.Link.Fingerprint, now.print):
			said = append(said, what+"changed while the bundle was under way: "+change(d.Link.Fingerprint, now.print)+".")
		}
	}
	return strings.Join(said, " ")
}

// spot is a place that a link means.
type spot struct {
	link, below   string
	roots, hidden []string
	reach         int64
	use           string // what the site does with the roots; empty is "links"
}

// refusal is why a link may not be used; nothing changes that but a person.
type refusal string

func (r refusal) Error() string { return string(r) }

// transient says whether another look may find what this one did not.
func transient(err error) bool {
	var refused refusal
	return !errors.As(err, &refused)
}

// resolve returns where a spot really is, or refuses it.
func (s spot) resolve() (string, error) {
	link := strings.TrimPrefix(s.link, "file://")
	if !path.IsAbs(link) {
		return "", refusal("not the absolute path of a file or a directory")
	}
	link = path.Clean(link)
	outside := refusal("not under a directory that this site " + cmp.Or(s.use, "links") + " (" + strings.Join(s.roots, ", ") + ")")
	if len(s.roots) == 0 {
		return "", refusal("this site lets the bundle's owner use no data in place")
	}
	var roots []string // as they are written, and where they lead
	for _, r := range s.roots {
		roots = append(roots, r)
		if dir, err := filepath.EvalSymlinks(r); err == nil && dir != "/" {
			roots = append(roots, dir)
		}
	}
	if !underAny(link, roots) { // nothing outside is so much as looked at
		return "", outside
	}
	where, err := follow(link)
	if err != nil {
		return "", err
	}
	if !underAny(where, roots) {
		return "", outside
	}
	if where, err = within(where, s.below); err != nil {
		return "", err
	}
	return where, s.checkHidden(where)
}

func (s spot) checkHidden(where string) error {
	for _, h := range s.hidden {
		if own, err := filepath.EvalSymlinks(h); err == nil {
			h = own
		}
		if under(where, h) || under(h, where) {
			return refusal("what lies there is not to be seen by bundles")
		}
	}
	return nil
}

// follow follows the symbolic links of a path.
func follow(name string) (string, error) {
	where, err := filepath.EvalSymlinks(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("it is not there: %w", fs.ErrNotExist)
	case errors.Is(err, fs.ErrPermission):
		return "", refusal("it may not be read")
	case err != nil:
		return "", fmt.Errorf("it cannot be reached: %w", err)
	}
	return where, nil
}

// within follows a dependency's parent path in its parent, which is at whole.
func within(whole, below string) (string, error) {
	if below == "" {
		return whole, nil
	}
	where, err := follow(path.Join(whole, path.Clean("/"+below)))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "", missing(whole, below)
	case err != nil:
		return "", fmt.Errorf("the path %s: %w", below, err)
	case !under(where, whole):
		return "", leadsOut(below)
	}
	return where, nil
}

func leadsOut(below string) error { return refusal("the path " + below + " leads out of it") }

// missing is the error for a parent path at which nothing was found. As a rule that is
// a slip of the researcher's, who is to hear of it at once: a refusal.
//
// A disk that hosts share may not show yet what another host has just made. But an NFS
// client asks the server about a directory that is opened (close-to-open), and
// forgets what it knew of its entries if they have changed. So what counts is
// the first directory on the path, opened now, that does not list the next name.
// Two answers are no evidence, and another try may find more: an empty directory,
// which stays where a file system is not mounted, and a name that is listed but
// leads nowhere, such as a link to there.
func missing(whole, below string) error {
	words := "the path " + below + " is not there"
	again := fmt.Errorf("%s: %w", words, fs.ErrNotExist)
	at := whole
	for name := range strings.SplitSeq(strings.Trim(path.Clean("/"+below), "/"), "/") {
		names, err := namesIn(at)
		switch {
		case errors.Is(err, syscall.ENOTDIR):
			return refusal(words)
		case err != nil, len(names) == 0:
			return again
		case !slices.Contains(names, name):
			return refusal(words)
		}
		if at, err = follow(path.Join(at, name)); err != nil {
			return again
		}
		if !under(at, whole) {
			return leadsOut(below)
		}
	}
	return again
}

// namesIn opens a directory and lists what is in it. A pipe that took its place
// holds nobody.
func namesIn(dir string) ([]string, error) {
	d, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

// under says whether a path is dir or lies below it.
func under(name, dir string) bool {
	below, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(below)
}

func underAny(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return under(name, dir) })
}
