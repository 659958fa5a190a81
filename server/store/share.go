package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// Equal contents of an owner take room on the disk once. Each bundle has a directory of its own, and equal files in them
// are hard links. So the disk itself counts the bundles that have a file, and removes it with the last of them: no
// count can be wrong, a crash leaves no bundle without a file, and an upload that shares files with a
// bundle that is removed at the same time has either the files or its own copy.
//
// Contents of another owner are never shared, so that nobody learns what others have. Quotas count the contents of
// each bundle in full, so that the removal of one does not make another one larger.

const (
	// leastShared is the least size of shared contents. The room of smaller ones is less than
	// the time of a search for equals is worth: a sweep has thousands.
	leastShared = 64 << 10
	// mostCompared is the number of an owner's contents of the same size that an upload is compared with. Those that
	// differ cost little: they differ in their first file, or its time.
	mostCompared = 32
)

// CompleteUpload makes the contents of an upload for a bundle durable, and returns their extent. Files that equal those
// of other contents of the owner become the same files.
func (s *Store) CompleteUpload(ctx context.Context, u *Upload, b Bundle) (codalab.Extent, error) {
	extent, err := u.measure()
	if err != nil {
		return codalab.Extent{}, err
	}
	if extent.Bytes >= leastShared {
		s.shareEqual(ctx, u, uploadKey{b.OwnerID, extent})
	}
	return extent, u.flush()
}

// shareEqual makes an upload share its files with equal contents of the owner. A failure only costs room.
func (s *Store) shareEqual(ctx context.Context, u *Upload, key uploadKey) {
	earlier := s.uploads.begin(key, u.Name)
	u.ended = func() { s.uploads.end(key, u.Name) }
	stored, err := s.ofSize(ctx, key)
	// Those of bundles come first: an upload may be about to take their files over, too.
	for _, name := range append(stored, earlier...) {
		equal := false
		if err == nil {
			equal, err = filetree.Share(ctx, u.path(), filepath.Join(s.dir, "bundles", name, ContentsPath), !u.alone)
		}
		if equal {
			break
		}
	}
	if err != nil && ctx.Err() == nil && s.Failed != nil {
		s.Failed(fmt.Errorf("look for equal contents: %w", err))
	}
}

// ofSize returns the names of an owner's contents of a size, the newest first. It leaves out results that a worker has
// written into the store, because the worker may still write.
func (s *Store) ofSize(ctx context.Context, key uploadKey) ([]string, error) {
	var found []Bundle
	err := s.db.SelectContext(ctx, &found, s.db.Rebind(fmt.Sprintf(`
		SELECT uuid, contents, assigned FROM bundles
		WHERE owner_id = ? AND data_size = ? AND entries = ? AND contents <> ''
		ORDER BY created DESC LIMIT %d`, mostCompared)), key.ownerID, key.extent.Bytes, key.extent.Entries)
	if err != nil {
		return nil, rowError(err, "find equal contents")
	}
	found = slices.DeleteFunc(found, func(b Bundle) bool { return b.Contents == b.LocationName() })
	names := make([]string, 0, len(found))
	for _, b := range found {
		names = append(names, b.Contents)
	}
	return names, nil
}

// uploadKey is the owner and the extent of an upload.
type uploadKey struct {
	ownerID string
	extent  codalab.Extent
}

// openUploads are the uploads whose contents are complete, and that are no bundle's yet.
type openUploads struct {
	mu    sync.Mutex
	names map[uploadKey][]string
}

// begin adds an upload, and returns the earlier ones of its key, the earliest first. So of equal uploads at the same time,
// the later ones share the files of the earliest.
func (o *openUploads) begin(key uploadKey, name string) (earlier []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.names == nil {
		o.names = map[uploadKey][]string{}
	}
	earlier = slices.Clone(o.names[key])
	o.names[key] = append(o.names[key], name)
	return earlier
}

func (o *openUploads) end(key uploadKey, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := slices.DeleteFunc(o.names[key], func(n string) bool { return n == name })
	if o.names[key] = left; len(left) == 0 {
		delete(o.names, key)
	}
}

// equals are the contents of a backup on another disk than the store. So that equal ones take their room once there, too,
// each shares its files with equal ones as soon as it is copied.
type equals struct {
	dir  string
	keys map[string]uploadKey   // of all contents that may have equals, by their names
	done map[uploadKey][]string // the names of those that are copied
}

// equalsIn returns the equals of a backup: none on the store's disk, where the copies are hard links.
func (s *Store) equalsIn(ctx context.Context, backup *Store) (*equals, error) {
	e := &equals{dir: filepath.Join(backup.dir, "bundles"), keys: map[string]uploadKey{}, done: map[uploadKey][]string{}}
	var here, there unix.Stat_t
	if err := errors.Join(unix.Stat(s.dir, &here), unix.Stat(backup.dir, &there)); err != nil {
		return nil, fmt.Errorf("compare disks: %w", err)
	}
	if here.Dev == there.Dev {
		return e, nil
	}
	var all []Bundle
	err := backup.db.SelectContext(ctx, &all, fmt.Sprintf(`
		SELECT owner_id, data_size, entries, contents FROM bundles WHERE contents <> '' AND data_size >= %d`, leastShared))
	if err != nil {
		return nil, rowError(err, "find equal contents")
	}
	for _, b := range all {
		e.keys[b.Contents] = uploadKey{b.OwnerID, b.Extent()}
	}
	return e, nil
}

// add adds contents that are copied.
func (e *equals) add(name string) {
	if key, ok := e.keys[name]; ok {
		e.done[key] = append(e.done[key], name)
	}
}

// share makes copied contents share their files with equal ones, and adds them.
func (e *equals) share(ctx context.Context, name string) error {
	others := e.done[e.keys[name]]
	for _, other := range others[max(0, len(others)-mostCompared):] {
		equal, err := filetree.Share(ctx, filepath.Join(e.dir, name, ContentsPath), filepath.Join(e.dir, other, ContentsPath), true)
		if err != nil {
			return err
		}
		if equal {
			break
		}
	}
	e.add(name)
	return nil
}
