package source

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// isClosed reports whether Closed returns true for any file of an image. An unreadable file counts
// as closed.
func (src Source) isClosed(ctx context.Context, s store, digest string) bool {
	local, ok := s.(*localStore)
	if !ok || src.Closed == nil {
		return false
	}
	switch in := local.files.(type) {
	case *archive:
		return src.Closed(in.f)
	case directory:
		return src.hasClosedBlob(ctx, local, in, digest)
	}
	return true
}

// hasClosedBlob is isClosed for a directory, in which each blob is a file.
func (src Source) hasClosedBlob(ctx context.Context, s *localStore, dir directory, digest string) bool {
	m, err := s.manifestOf(ctx, digest)
	if err != nil {
		return true
	}
	image, err := m.image()
	if err != nil {
		return true
	}
	for _, d := range append([]v1.Descriptor{{Digest: m.digest}, image.Config}, image.Layers...) {
		name, _ := s.blobName(d.Digest)
		f, err := src.openRegular(filepath.Join(dir.path, name))
		if errors.Is(err, fs.ErrNotExist) { // the image does not use it
			continue
		}
		closed := err != nil || src.Closed(f)
		if err == nil {
			err = f.Close()
		}
		if closed || err != nil {
			return true
		}
	}
	return false
}
