package server

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// openStored opens what holds a target that no worker has: the store, or the disk where the
// bundle is a link. It returns where in it the target lies; the caller closes it
// (codalab/lib/download_manager.py: get_target_info).
func (s *Server) openStored(p place) (root *os.Root, at string, err error) {
	if link := p.Metadata.String("link_url"); link != "" {
		root, at, err = s.openLink(p, link)
		return root, path.Join(at, p.path), err
	}
	root, err = s.store.OpenContents(p.Bundle)
	if errors.Is(err, store.ErrNotFound) {
		return nil, "", p.refusal(contents.ErrNotFound)
	}
	return root, path.Join(store.ContentsPath, p.path), err
}

// openLink opens what a link leads to, below one of LinkRoots: a directory itself, a file in
// its directory. Symbolic links are followed while they stay below that root, and in what is
// opened while they stay below that.
func (s *Server) openLink(p place, link string) (root *os.Root, at string, err error) {
	clean, dir, ok := s.linkRoot(link)
	if !ok {
		return nil, "", refuse(http.StatusNotFound, "Bundle %s is a link to %s, which this server does not read", p.UUID, link)
	}
	below, err := filepath.Rel(dir, clean)
	if err == nil {
		root, at, err = openBelow(dir, below)
	}
	if err != nil {
		return nil, "", refuse(http.StatusNotFound, "Bundle %s is a link to %s, which this server cannot read", p.UUID, link)
	}
	return root, at, nil
}

// linkRoot returns the path that a link means and the root that it lies below, if there is
// one.
func (s *Server) linkRoot(link string) (clean, root string, ok bool) {
	clean = path.Clean("/" + strings.TrimPrefix(link, "file://"))
	for _, dir := range s.LinkRoots {
		if below, err := filepath.Rel(dir, clean); err == nil && filepath.IsLocal(below) {
			return clean, dir, true
		}
	}
	return "", "", false
}

func openBelow(dir, below string) (_ *os.Root, at string, err error) {
	outer, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", fmt.Errorf("open link: %w", err)
	}
	defer func() { err = errors.Join(err, outer.Close()) }()
	info, err := outer.Stat(below)
	if err != nil {
		return nil, "", fmt.Errorf("open link: %w", err)
	}
	if !info.IsDir() {
		below, at = path.Split(below)
	}
	root, err := outer.OpenRoot(path.Clean(below))
	if err != nil {
		return nil, "", fmt.Errorf("open link: %w", err)
	}
	return root, at, nil
}
