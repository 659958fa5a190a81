package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// equals are the contents of a backup on another disk than the store. So that equal files take their room once there, too,
// contents share files with others as soon as they are copied, as those of uploads do.
type equals struct {
	dir  string
	all  map[string]bundleRow   // those that may have equals, by the names of their contents
	done map[uploadKey][]string // the names of those that are copied
	like map[nameKey]string     // the last ones that are copied
}

// nameKey is the owner and the name of bundles.
type nameKey struct{ ownerID, name string }

// equalsIn returns the equals of a backup: none on the store's disk, where the copies are hard links.
func (s *Store) equalsIn(ctx context.Context, backup *Store) (*equals, error) {
	e := &equals{dir: filepath.Join(backup.dir, "bundles"), all: map[string]bundleRow{}, done: map[uploadKey][]string{}, like: map[nameKey]string{}}
	var here, there unix.Stat_t
	if err := errors.Join(unix.Stat(s.dir, &here), unix.Stat(backup.dir, &there)); err != nil {
		return nil, fmt.Errorf("compare disks: %w", err)
	}
	if here.Dev == there.Dev {
		return e, nil
	}
	var rows []bundleRow
	err := backup.db.SelectContext(ctx, &rows, fmt.Sprintf(`
		SELECT owner_id, name, data_size, entries, contents FROM bundles WHERE contents <> '' AND data_size >= %d`, leastShared))
	if err != nil {
		return nil, rowError(err, "find equal contents")
	}
	for _, row := range rows {
		e.all[row.Contents] = row
	}
	return e, nil
}

// add adds contents that are copied.
func (e *equals) add(name string) {
	if b, ok := e.all[name]; ok {
		key := uploadKey{b.OwnerID, b.Extent()}
		e.done[key] = append(e.done[key], name)
		e.like[nameKey{b.OwnerID, b.Name}] = name
	}
}

// share makes copied contents share their files with others, and adds them.
func (e *equals) share(ctx context.Context, name string) error {
	b, ok := e.all[name]
	if !ok {
		return nil
	}
	defer e.add(name)
	vain := b.Extent().Bytes // at most the contents themselves are read in vain
	others := e.done[uploadKey{b.OwnerID, b.Extent()}]
	for _, other := range others[max(0, len(others)-mostCompared):] {
		if equal, err := e.shareWith(ctx, name, other, filetree.Sharing{Times: true, Vain: &vain}); err != nil || equal {
			return err
		}
	}
	if other, ok := e.like[nameKey{b.OwnerID, b.Name}]; ok {
		_, err := e.shareWith(ctx, name, other, filetree.Sharing{Times: true, Partly: true, Vain: &vain})
		return err
	}
	return nil
}

func (e *equals) shareWith(ctx context.Context, name, other string, how filetree.Sharing) (equal bool, err error) {
	return filetree.Share(ctx, filepath.Join(e.dir, name, ContentsPath), filepath.Join(e.dir, other, ContentsPath), how)
}
