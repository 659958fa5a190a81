package bundles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// createBundles creates bundles and adds them to a worksheet (codalab/rest/bundles.py:
// _create_bundles).
func (s *Bundles) createBundles(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx, q := r.Context(), r.URL.Query()
	detached, err := rest.BoolParam(q, "detached", false)
	if err != nil {
		return err
	}
	waits, err := rest.BoolParam(q, "wait_for_upload", false)
	if err != nil {
		return err
	}
	at, err := readPlace(q)
	if err != nil {
		return err
	}
	include, err := rest.Includes(q, "group_permissions")
	if err != nil {
		return err
	}
	check, err := rest.BoolParam(q, "check_requests", false)
	if err != nil {
		return err
	}
	anonymous := false
	switch {
	case detached:
		at = store.Place{}
	case at.Worksheet == "":
		return rest.Refuse(http.StatusBadRequest, "A worksheet is needed to create bundles, or detached=1")
	default:
		sheet, err := s.config.Access.Changeable(ctx, u, at.Worksheet)
		if err != nil {
			return err
		}
		anonymous = sheet.IsAnonymous // bundles inherit it
	}
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	bundles, err := s.checkAll(ctx, u, objects, waits, anonymous) // before creating any
	if err != nil {
		return err
	}
	var warnings []string
	if check {
		if warnings, err = s.checkRequests(ctx, u, at.Worksheet, bundles); err != nil {
			return err
		}
	}
	created, err := s.config.Store.CreateBundles(ctx, bundles, at)
	answer, uuids := []codalab.Object{}, []string{}
	for _, b := range created {
		answer, uuids = append(answer, present.BundleObject(b, store.PermissionAll)), append(uuids, b.UUID)
	}
	s.config.Changed(uuids...)
	if taken, ok := errors.AsType[*store.TakenError](err); ok {
		err = rest.Refuse(http.StatusConflict, "Bundle %s exists already", taken.UUID)
	}
	if err != nil {
		return access.FullWorksheet(err)
	}
	return s.writeCreated(w, r, u, createdAnswer{answer, include["group_permissions"], warnings})
}

// checkAll returns the bundles that a client requests, or refuses them.
func (s *Bundles) checkAll(ctx context.Context, u store.User, objects []codalab.Object, waits, anonymous bool) ([]store.Bundle, error) {
	c := checker{Bundles: s, user: u, waits: waits, parents: map[string]parent{}}
	bundles := make([]store.Bundle, 0, len(objects))
	for _, o := range objects {
		b, err := c.checkNew(ctx, o)
		if err != nil {
			return nil, err
		}
		b.IsAnonymous = anonymous
		bundles = append(bundles, b)
	}
	return bundles, nil
}

// checker checks the new bundles of one request. It asks the database once for what they have in common.
type checker struct {
	*Bundles
	user  store.User
	waits bool
	// parents are the bundles on which new ones depend, by uuid.
	parents map[string]parent
	// hasRoom is set when the user's quotas have room for new bundles.
	hasRoom bool
}

// parent is a bundle on which a new one depends, or the reason why the user cannot use it.
type parent struct {
	store.Bundle
	err error
}

// readable returns a bundle that the user may read.
func (c *checker) readable(ctx context.Context, uuid string) (store.Bundle, error) {
	p, known := c.parents[uuid]
	if !known {
		p.Bundle, p.err = c.config.Access.Readable(ctx, c.user, uuid)
		c.parents[uuid] = p
	}
	return p.Bundle, p.err
}

// checkQuotas refuses new bundles of a user whose quotas are used up.
func (c *checker) checkQuotas(ctx context.Context) error {
	if c.hasRoom {
		return nil
	}
	why, err := c.config.Contents.Quotas.RefusesNew(ctx, c.user)
	if err == nil && why != "" {
		err = rest.Refuse(http.StatusBadRequest, "%s", why)
	}
	c.hasRoom = err == nil
	return err
}

// checkRequests refuses new runs that would fail for their requests, and returns warnings about queues in which they
// would wait for long. A copy of a run, which waits for its contents, needs no queue.
func (s *Bundles) checkRequests(ctx context.Context, u store.User, worksheet string, bundles []store.Bundle) (warnings []string, err error) {
	outlookOf, err := s.config.Outlook(ctx, u, worksheet)
	if err != nil {
		return nil, err
	}
	for _, b := range bundles {
		if b.Type != codalab.TypeRun || b.State == codalab.StateUploading {
			continue
		}
		switch outlook := outlookOf(b); {
		case outlook.Refusal != "":
			return nil, rest.Refuse(http.StatusBadRequest, "%s", outlook.Refusal)
		case outlook.Warning != "":
			warnings = append(warnings, outlook.Warning)
		}
	}
	return warnings, nil
}

// createdAnswer has new bundles for their client: with the permissions of groups on them if the client wants them.
type createdAnswer struct {
	objects     []codalab.Object
	permissions bool
	warnings    []string
}

// writeCreated answers with new bundles.
func (s *Bundles) writeCreated(w http.ResponseWriter, r *http.Request, u store.User, a createdAnswer) error {
	related, uuids := present.Relations{Objects: map[string]codalab.Object{}}, []string{}
	for _, o := range a.objects {
		related.Objects[o.ID] = o
		uuids = append(uuids, o.ID)
	}
	if a.permissions {
		if err := s.addPermissions(r.Context(), u, uuids, &related); err != nil {
			return err
		}
	}
	return rest.WriteWarnings(w, a.objects, related.Included, a.warnings)
}

// readPlace returns the place at which a client wants new bundles.
func readPlace(q url.Values) (store.Place, error) {
	at := store.Place{Worksheet: q.Get("worksheet"), Behind: q.Get("shadow")}
	if after := q.Get("after_sort_key"); after != "" {
		key, err := strconv.ParseInt(after, 10, 64)
		if err != nil {
			return at, rest.Refuse(http.StatusBadRequest, "after_sort_key must be a whole number, not '%s'", after)
		}
		at.After = &key
	}
	var err error
	at.BlankBefore, err = rest.BoolParam(q, "after_image", false)
	return at, err
}

// checkNew returns the bundle that a client requests, or refuses it.
func (c *checker) checkNew(ctx context.Context, o codalab.Object) (store.Bundle, error) {
	var in codalab.NewBundle
	if err := o.Decode(&in); err != nil {
		return store.Bundle{}, rest.Refuse(http.StatusBadRequest, "A bundle's attributes have the wrong types")
	}
	if codalab.MetadataKeys(in.Type) == nil {
		return store.Bundle{}, rest.Refuse(http.StatusBadRequest, "This server cannot create bundles of type '%s', only dataset, program, make and run", in.Type)
	}
	if in.Metadata == nil {
		in.Metadata = codalab.Metadata{}
	}
	if err := codalab.CheckMetadata(in.Type, in.Metadata, true); err != nil {
		return store.Bundle{}, rest.Refuse(http.StatusBadRequest, "%s", err)
	}
	if err := access.CheckName(in.Metadata.String("name")); err != nil {
		return store.Bundle{}, err
	}
	if err := checkTextSize(in.Metadata, rest.Deref(in.Command)); err != nil {
		return store.Bundle{}, err
	}
	if err := codalab.CheckCommand(rest.Deref(in.Command)); err != nil {
		return store.Bundle{}, rest.Refuse(http.StatusBadRequest, "%s", codalab.Sentence(err.Error()))
	}
	if in.UUID == "" {
		in.UUID = codalab.NewUUID()
	}
	if !codalab.IsUUID(in.UUID) {
		return store.Bundle{}, rest.Refuse(http.StatusBadRequest, "'%s' is not a uuid", in.UUID)
	}
	if err := c.checkQuotas(ctx); err != nil {
		return store.Bundle{}, err
	}
	b := store.Bundle{
		UUID: in.UUID, Type: in.Type, OwnerID: c.user.ID,
		Metadata: in.Metadata, Created: store.Time{Time: c.config.Now()}, Dependencies: []codalab.Dependency{},
	}
	b.Metadata["created"] = b.Created.Unix()
	var err error
	switch in.Type {
	case codalab.TypeRun:
		b, err = c.checkNewRun(ctx, in, b)
	case codalab.TypeMake:
		b.Command = in.Command
		if !b.Metadata.Has("store") {
			b.Metadata["store"] = ""
		}
		b, err = c.addDependencies(ctx, in, b)
	}
	stored.Become(&b, stored.Plan(b).Create(c.waits))
	return b, err
}

func (c *checker) checkNewRun(ctx context.Context, in codalab.NewBundle, b store.Bundle) (store.Bundle, error) {
	if strings.TrimSpace(rest.Deref(in.Command)) == "" {
		return b, rest.Refuse(http.StatusBadRequest, "A run needs a command")
	}
	if err := c.config.CheckSecrets(ctx, c.user.ID, b.Metadata.Strings(codalab.SecretsKey)); err != nil {
		return b, err
	}
	b.Command = in.Command
	if c.waits {
		b.Platform = importedPlatform(in.Platform)
	}
	for _, key := range []string{"actions", "remote_history"} {
		if !b.Metadata.Has(key) {
			b.Metadata[key] = []string{}
		}
	}
	return c.addDependencies(ctx, in, b)
}

// importedPlatform is the platform of a run that a user copies to this server. It says so, since the user may write what they want.
func importedPlatform(told *codalab.Platform) *codalab.Platform {
	copied := told.Copied()
	if copied == nil {
		return nil
	}
	p := copied.Bounded(termtext.OneLine)
	if p.IsZero() {
		return nil
	}
	p.Imported = true
	return &p
}

// addDependencies adds the dependencies of a new run or make bundle. The user must be able to read the parents, unless the
// bundle waits for its contents: it is the copy of one that has run.
func (c *checker) addDependencies(ctx context.Context, in codalab.NewBundle, b store.Bundle) (store.Bundle, error) {
	if n := len(in.Dependencies); n > maxDependencies {
		return b, rest.Refuse(http.StatusRequestEntityTooLarge, "A bundle may have %d dependencies, not %d", maxDependencies, n)
	}
	taken := map[string]bool{}
	for _, d := range in.Dependencies {
		if !codalab.IsUUID(d.ParentUUID) {
			return b, rest.Refuse(http.StatusBadRequest, "Dependency '%s' names no bundle: '%s'", d.ChildPath, d.ParentUUID)
		}
		if strings.ContainsAny(d.ChildPath+d.ParentPath, "\x00\n") {
			return b, rest.Refuse(http.StatusBadRequest, "Dependency %q has a line break in its key or path", d.ChildPath)
		}
		// A key that begins with a slash is a path in the container.
		if !withinBundle(strings.TrimLeft(d.ChildPath, "/")) || !withinBundle(d.ParentPath) {
			return b, rest.Refuse(http.StatusBadRequest, "Dependency '%s' leads out of a bundle", d.ChildPath)
		}
		if len(d.ChildPath) > access.MaxKey {
			return b, rest.Refuse(http.StatusBadRequest, "The key of a dependency may have %d bytes, not %d", access.MaxKey, len(d.ChildPath))
		}
		if in.Type == codalab.TypeMake && path.IsAbs(d.ChildPath) {
			return b, rest.Refuse(http.StatusBadRequest, "Invalid key for dependency: %s", d.ChildPath)
		}
		if taken[path.Clean(d.ChildPath)] {
			return b, rest.Refuse(http.StatusBadRequest, "Dependency '%s' is given twice", d.ChildPath)
		}
		taken[path.Clean(d.ChildPath)] = true
		parent, err := c.readable(ctx, d.ParentUUID)
		if copied := c.waits && (rest.HasStatus(err, http.StatusForbidden) || rest.HasStatus(err, http.StatusNotFound)); err != nil && !copied {
			return b, err // the parent of a copy may be on another server
		}
		b.Dependencies = append(b.Dependencies, codalab.Dependency{
			ChildUUID: b.UUID, ChildPath: d.ChildPath, ParentUUID: d.ParentUUID, ParentPath: d.ParentPath,
			ParentName: parent.Metadata.String("name"), ParentState: parent.State,
		})
	}
	return b, nil
}

// maxDependencies bounds the dependencies of a bundle. Each is a question to the database, and a mount in the run's container.
const maxDependencies = 10_000

// maxText bounds a bundle's metadata and command, in bytes. No quota counts them, and every listing of
// bundles reads them.
const maxText = 256 << 10

// checkTextSize refuses metadata and a command that are too long.
func checkTextSize(m codalab.Metadata, command string) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	if n := len(text) + len(command); n > maxText {
		return rest.Refuse(http.StatusRequestEntityTooLarge, "The metadata and the command have %d bytes, and may have %d", n, maxText)
	}
	return nil
}

// withinBundle reports whether a path of a dependency stays in its bundle.
func withinBundle(p string) bool {
	clean := path.Clean(p)
	return !strings.ContainsAny(p, "\x00\n") && !path.IsAbs(p) && clean != ".." && !strings.HasPrefix(clean, "../")
}
