package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/interruptible"
	"github.com/cl-slurm/cl-slurm/staging/sitepath"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// findSIFToCopy finds the SIF that an operator wants to keep a copy of. The key of the copy differs from
// those of conversions.
func (im *Images) findSIFToCopy(ctx context.Context, ref source.Reference, architecture string, item *transfer.Item) (found, error) {
	architecture = im.architecture(architecture)
	sif, err := (&Files{Roots: []string{"/"}}).findSIF(ctx, "", ref.Path(), item)
	if err == nil {
		err = sif.checkArchitecture(architecture)
	}
	closed := false
	if err == nil {
		closed, err = im.isClosed(sif.Path)
	}
	if err != nil {
		// A bundle waits for a file that another host has just made. An operator gets the error
		// immediately.
		absent := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
		return found{}, &transfer.Error{What: "image " + ref.String(), Err: err, Retry: sitepath.IsTransient(err) && !absent}
	}
	img := source.Image{Reference: ref, Digest: sif.Digest, Architecture: architecture}
	key := cache.Key{Kind: sifKind, ID: img.Digest + " " + img.Architecture + " as it was"}
	return found{Image: img, key: key, sif: sif.Path, closed: closed}, nil
}

// isClosed reports whether some members of the cache's group may not read a file.
func (im *Images) isClosed(path string) (closed bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return !im.Cache.MayShare(f), nil
}

func (im *Images) copySIF(ctx context.Context, f found, t *transfer.Transfer, tmp string) (err error) {
	if err := im.checkSpace(tmp); err != nil {
		return err
	}
	from, err := os.Open(f.sif)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if info, err := from.Stat(); err == nil {
		t.SetBytes(0, info.Size())
	}
	to, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(to, sum, t), interruptible.Reader(ctx, from))
	err = errors.Join(err, to.Close())
	if err == nil && f.Digest != "sha256:"+hex.EncodeToString(sum.Sum(nil)) {
		err = errors.New("it changes while it is copied")
	}
	return err
}
