package staging

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
)

// askFile is ask for a SIF of whoever may read it, of which a copy is to be kept.
func (im *Images) askFile(ctx context.Context, owner string, ref source.Reference, architecture string, p *part) (found, error) {
	files := &ImageFiles{Roots: []string{"/"}}
	d, err := files.find(ctx, owner, ref.Path(), p)
	if err == nil {
		err = fits(d, im.architecture(architecture))
	}
	if err != nil {
		return found{}, &Error{What: "image " + ref.String(), Err: err, Retry: transient(err) && !isAbsent(err)}
	}
	closed, err := im.closed(d.Path)
	if err != nil {
		return found{}, &Error{What: "image " + ref.String(), Err: err, Retry: transient(err)}
	}
	img := source.Image{Reference: ref, Digest: d.Digest, Architecture: im.architecture(architecture)}
	key := cache.Key{Kind: sifKind, ID: img.Digest + " " + img.Architecture + " as it was"}
	return found{Image: img, key: key, file: d.Path, closed: closed}, nil
}

// closed says whether a file may not be read by all who share the cache.
func (im *Images) closed(path string) (closed bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return !im.Cache.MayShare(f), nil
}

// isAbsent says that a file is not there. A bundle waits for one that was made on
// another host a moment ago; who names it on a command line is to hear it at once.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// copyFile brings a copy of a SIF in.
func (im *Images) copyFile(ctx context.Context, f found, d *download, tmp string) (err error) {
	if err := im.spare(tmp); err != nil {
		return err
	}
	from, err := os.Open(f.file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if info, err := from.Stat(); err == nil {
		d.total.Store(info.Size())
	}
	to, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	d.done.Store(0)
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(to, sum, (*tallied)(d)), until{ctx, from})
	err = errors.Join(err, to.Close())
	if err == nil && f.Digest != "sha256:"+hex.EncodeToString(sum.Sum(nil)) {
		err = errors.New("it changes while it is copied")
	}
	return err
}

// until reads until a context ends.
type until struct {
	ctx context.Context //nolint:containedctx // of one copy
	io.Reader
}

func (u until) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(b)
}
