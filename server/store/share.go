package store

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

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
	// leastShared is the least size of contents that share files. The room of smaller ones is less than the time of a search for
	// equals is worth: a sweep has thousands.
	leastShared = 64 << 10
	// mostCompared is the number of an owner's contents of the same size that an upload is compared with. Those that
	// differ cost little: they differ in their first file, or its time.
	mostCompared = 32

	// Conditions for contents, each with an index of its own.
	ofSize = `owner_id = ? AND data_size = ? AND entries = ?`
	ofName = `owner_id = ? AND name = ?`
)

// CompleteUpload makes the contents of an upload for a bundle durable, and returns their extent. Files that equal those
// of other contents of the owner become the same files.
func (s *Store) CompleteUpload(ctx context.Context, u *Upload, b Bundle) (codalab.Extent, error) {
	extent, err := u.measure()
	if err != nil {
		return codalab.Extent{}, err
	}
	if extent.Bytes >= leastShared {
		s.shareEqual(ctx, u, b, extent)
	}
	return extent, u.flush()
}

// shareEqual makes an upload share its files with equal contents of the owner. A failure only costs room.
func (s *Store) shareEqual(ctx context.Context, u *Upload, b Bundle, extent codalab.Extent) {
	key := uploadKey{b.OwnerID, extent}
	earlier := s.uploads.begin(key, u.Name)
	u.ended = func() { s.uploads.end(key, u.Name) }
	stored, err := s.newest(ctx, mostCompared, ofSize, b.OwnerID, extent.Bytes, extent.Entries)
	// Those of bundles come first: an upload may be about to take their files over, too.
	equal, vain := false, extent.Bytes
	for _, name := range append(stored, earlier...) {
		if err == nil && !equal {
			equal, err = s.shareWith(ctx, u, name, filetree.Sharing{Times: !u.alone, Vain: &vain})
		}
	}
	if err == nil && !equal && !u.alone {
		err = s.shareLike(ctx, u, b, &vain)
	}
	if err != nil && ctx.Err() == nil && s.Failed != nil {
		s.Failed(fmt.Errorf("look for equal contents: %w", err))
	}
}

func (s *Store) shareWith(ctx context.Context, u *Upload, name string, how filetree.Sharing) (equal bool, err error) {
	return filetree.Share(ctx, u.path(), filepath.Join(s.dir, "bundles", name, ContentsPath), how)
}

// shareLike makes a directory share those files that did not change since the owner's newest bundle of the same name: people
// upload a directory, change a file in it, and upload it again.
func (s *Store) shareLike(ctx context.Context, u *Upload, b Bundle, vain *int64) error {
	names, err := s.newest(ctx, 1, ofName, b.OwnerID, b.Metadata.String("name"))
	if err == nil && len(names) > 0 {
		_, err = s.shareWith(ctx, u, names[0], filetree.Sharing{Times: true, Partly: true, Vain: vain})
	}
	return err
}

// newest returns the names of the newest contents of bundles that a condition chooses. It leaves out results that a worker has
// written into the store, because the worker may still write.
func (s *Store) newest(ctx context.Context, most int, condition string, args ...any) ([]string, error) {
	var found []Bundle
	err := s.db.SelectContext(ctx, &found, s.db.Rebind(newestQuery(most, condition)), args...)
	if err != nil {
		return nil, rowError(err, "find equal contents")
	}
	names := make([]string, 0, len(found))
	for _, b := range found {
		if b.Contents != b.LocationName() {
			names = append(names, b.Contents)
		}
	}
	return names, nil
}

func newestQuery(most int, condition string) string {
	return fmt.Sprintf(`SELECT uuid, contents, assigned FROM bundles WHERE %s AND contents <> '' ORDER BY created DESC LIMIT %d`, condition, most)
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
