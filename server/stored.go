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
	"github.com/cl-slurm/cl-slurm/internal/subpath"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// openStored opens the directory that contains a stored target: in the store, or where a link
// leads. at is the target's path in it. The caller closes root
// (codalab/lib/download_manager.py: get_target_info).
func (s *Server) openStored(p location) (root *os.Root, at string, err error) {
	if link := p.Metadata.String("link_url"); link != "" {
		root, at, err = s.openLink(p, link)
		return root, path.Join(at, p.path), err
	}
	root, err = s.Store.OpenContents(p.Bundle)
	if errors.Is(err, store.ErrNotFound) {
		return nil, "", p.refusal(contents.ErrNotFound)
	}
	return root, path.Join(store.ContentsPath, p.path), err
}

// openLink opens the directory to which a link leads, or the directory of a file. It must be
// below one of LinkRoots. Symbolic links on the way may not leave that root, and those in the
// target may not leave the opened directory.
func (s *Server) openLink(p location, link string) (root *os.Root, at string, err error) {
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

// linkRoot returns the path of a link and the one of LinkRoots that contains it, if there is
// one.
func (s *Server) linkRoot(link string) (clean, root string, ok bool) {
	clean = path.Clean("/" + strings.TrimPrefix(link, "file://"))
	for _, dir := range s.LinkRoots {
		if subpath.Within(clean, dir) {
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
