package results

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/sitepath"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// Store is the server's own store, on a disk that the server, this bridge and the nodes share
// (shared_file_system in the check-in). A run message names the paths of contents and the path for
// results, and no data is transferred (codalab/worker/worker_run_state.py: shared_file_system).
// Store refuses a path that is not below Dir, or not in a directory that is named for the bundle,
// so that a server cannot reach other files of this account.
type Store struct {
	// Dir is the path by which the server uses the store.
	Dir string
}

// Dependency returns the path of a dependency in the store. found is false if the server names no
// path, or one outside the store, as for a link. what names the dependency in errors.
func (s *Store) Dependency(what string, d codalab.RunDependency) (dep spool.Dependency, found bool, err error) {
	if d.Location == nil || !subpath.Within(path.Clean(*d.Location), s.Dir) {
		return dep, false, nil
	}
	source, err := s.locate(*d.Location, d.ParentUUID)
	if err == nil {
		source, err = sitepath.FollowBelow(source, d.ParentPath)
	}
	if err != nil {
		return dep, true, &transfer.Error{What: what, Err: err, Retry: sitepath.IsTransient(err)}
	}
	return spool.Dependency{ChildPath: d.ChildPath, Source: source, InPlace: true}, true, nil
}

// ListingHead returns the first bytes of the listing at a bundle's path, or "" if there is no
// readable one.
func (*Store) ListingHead(location string) string {
	root, err := os.OpenRoot(location)
	if err != nil {
		return ""
	}
	defer func() { _ = root.Close() }() // only read
	f, err := root.OpenFile(ListingName, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()                      // only read
	text, _ := io.ReadAll(io.LimitReader(f, ListingHead)) // an unreadable file is not a listing
	return string(text)
}

// locate returns a bundle's location without symbolic links. The server may have made links above the
// directory that is named for the bundle, for its partitions. Below that there must be none.
func (s *Store) locate(location, uuid string) (string, error) {
	location = path.Clean(location)
	below, err := filepath.Rel(s.Dir, location)
	if err != nil || !filepath.IsLocal(below) {
		return "", sitepath.RefusedError("the server says it is at " + location + ", which is not in its store " + s.Dir)
	}
	at := s.Dir
	for rest := below; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if !strings.HasPrefix(name, uuid) {
			at = path.Join(at, name)
			continue
		}
		if at, err = sitepath.Follow(at); err != nil {
			return "", fmt.Errorf("the server says it is at %s: %w", location, err)
		}
		want := path.Join(at, name, rest)
		if err := checkNoLink(want); err != nil {
			return "", fmt.Errorf("the server says it is at %s: %w", location, err)
		}
		return want, nil
	}
	return "", sitepath.RefusedError("the server says it is at " + location + ", which is not named for it")
}

func checkNoLink(want string) error {
	got, err := sitepath.Follow(want)
	if err == nil && got != want {
		err = sitepath.RefusedError("there is a symbolic link in the path " + want)
	}
	return err
}
