// Package sitepath resolves paths on the cluster's disks that a bundle or the server names, and
// refuses those that a bundle may not use.
//
// A path is checked after all its symbolic links are followed: it must be below one of the allowed
// roots, and apart from the hidden places. An error is permanent if it is a RefusedError. After
// other errors, another try may succeed.
package sitepath

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cl-slurm/cl-slurm/internal/subpath"
)

// RefusedError is the reason why a path may not be used. Only a person can change that.
type RefusedError string

func (r RefusedError) Error() string { return string(r) }

// IsTransient reports whether another try may succeed.
func IsTransient(err error) bool {
	var refused RefusedError
	return !errors.As(err, &refused)
}

// Place is a path that a bundle names.
type Place struct {
	// Path is absolute, and may begin with "file://". Below is a path inside it, or empty.
	Path, Below string
	// The path must be inside one of Roots. It must neither be inside one of Hidden nor contain
	// one.
	Roots, Hidden []string
	// Verb names the site's use of the roots in errors; empty means "links".
	Verb string
}

// Resolve returns a place's path without symbolic links.
func (p Place) Resolve() (string, error) {
	name := strings.TrimPrefix(p.Path, "file://")
	if !path.IsAbs(name) {
		return "", RefusedError("not the absolute path of a file or a directory")
	}
	name = path.Clean(name)
	outside := RefusedError("not under a directory that this site " + cmp.Or(p.Verb, "links") + " (" + strings.Join(p.Roots, ", ") + ")")
	if len(p.Roots) == 0 {
		return "", RefusedError("this site does not let the bundle's owner use data in place")
	}
	roots := slices.Clone(p.Roots)
	for _, r := range p.Roots {
		if dir, err := filepath.EvalSymlinks(r); err == nil && dir != "/" {
			roots = append(roots, dir)
		}
	}
	if !withinAny(name, roots) { // nothing outside the roots is read, not even a link
		return "", outside
	}
	where, err := Follow(name)
	if err != nil {
		return "", err
	}
	if !withinAny(where, roots) {
		return "", outside
	}
	if where, err = FollowBelow(where, p.Below); err != nil {
		return "", err
	}
	return where, CheckHidden(where, p.Hidden)
}

func withinAny(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return subpath.Within(name, dir) })
}

// CheckHidden refuses a path without symbolic links that is inside a hidden place or contains one.
func CheckHidden(where string, hidden []string) error {
	for _, h := range hidden {
		if resolved, err := filepath.EvalSymlinks(h); err == nil {
			h = resolved
		}
		if subpath.Within(where, h) || subpath.Within(h, where) {
			return RefusedError("bundles may not use this path")
		}
	}
	return nil
}

// Follow follows the symbolic links of a path.
func Follow(name string) (string, error) {
	where, err := filepath.EvalSymlinks(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("it is not there: %w", fs.ErrNotExist)
	case errors.Is(err, fs.ErrPermission):
		return "", RefusedError("it may not be read")
	case err != nil:
		return "", fmt.Errorf("it cannot be reached: %w", err)
	}
	return where, nil
}

// FollowBelow follows a path below inside the directory whole, which has no symbolic links. It
// refuses one that leads out of it.
func FollowBelow(whole, below string) (string, error) {
	if below == "" {
		return whole, nil
	}
	where, err := Follow(path.Join(whole, path.Clean("/"+below)))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "", missing(whole, below)
	case err != nil:
		return "", fmt.Errorf("the path %s: %w", below, err)
	case !subpath.Within(where, whole):
		return "", leadsOut(below)
	}
	return where, nil
}

func leadsOut(below string) error { return RefusedError("the path " + below + " leads out of it") }

// missing returns the error for a path below that does not exist. Usually the researcher mistyped
// it. Then the error is a RefusedError, and the researcher learns of it immediately.
//
// But a shared disk may not show yet what another host has just made. When a directory is opened,
// an NFS client asks the server about it (close-to-open), and drops its cached entries if they have
// changed. So missing opens the directories on the path again, and refuses the path if one does not
// list the next name. In two cases another try may succeed: an empty directory, which is there
// while a file system is not mounted, and a listed name that leads nowhere, such as a link into
// such a directory.
func missing(whole, below string) error {
	words := "the path " + below + " is not there"
	again := fmt.Errorf("%s: %w", words, fs.ErrNotExist)
	at := whole
	for name := range strings.SplitSeq(strings.Trim(path.Clean("/"+below), "/"), "/") {
		names, err := List(at)
		switch {
		case errors.Is(err, syscall.ENOTDIR):
			return RefusedError(words)
		case err != nil, len(names) == 0:
			return again
		case !slices.Contains(names, name):
			return RefusedError(words)
		}
		if at, err = Follow(path.Join(at, name)); err != nil {
			return again
		}
		if !subpath.Within(at, whole) {
			return leadsOut(below)
		}
	}
	return again
}

// List opens a directory and returns the names in it. It does not block on a pipe that has replaced
// the directory.
func List(dir string) ([]string, error) {
	d, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}
