package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/sitepath"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// Files are SIFs on the shared disk that bundles use in place, without a copy. It is safe for
// concurrent use. Its exported fields must not change after its first use.
//
// A bundle may use a SIF below a root for images, or below a root of links that its owner may use,
// if this process may read it. The path is checked after its symbolic links are followed. The
// worker checks it again, and refuses a file that has changed.
type Files struct {
	// Roots are directories whose SIFs every bundle may use.
	Roots []string
	// Hidden are files and directories that must not contain a SIF.
	Hidden []string
	// OwnerRoots returns the roots of links that an owner may use; nil means none.
	OwnerRoots func(ctx context.Context, owner string) ([]string, error)
	// Records is a directory of known digests. If it is empty, digests are known only to this
	// process.
	Records string

	reads     sitepath.Calls[sifFile]
	transfers transfer.Registry
}

// sifFile is a SIF with its digest. The fields except Digest and Architecture identify the file,
// and show whether it was written to.
type sifFile struct {
	Path         string `json:"path"`
	Inode        uint64 `json:"inode"`
	Size         int64  `json:"size"`
	Modified     int64  `json:"modified"` // nanoseconds since 1970, like Changed
	Changed      int64  `json:"changed"`
	Digest       string `json:"digest"`
	Architecture string `json:"architecture"`
}

// isSIF reports whether a reference means a SIF on the shared disk, with or without a digest.
func isSIF(reference string) bool {
	path, _, _ := strings.Cut(reference, "@")
	return strings.HasPrefix(path, "/") && strings.HasSuffix(path, ".sif")
}

// stageSIF finds the SIF that a run uses in place.
func (im *Images) stageSIF(ctx context.Context, run codalab.RunBundle, reference, architecture string, item *transfer.Item) (spool.Inputs, error) {
	path, digest, _ := strings.Cut(reference, "@")
	path = filepath.Clean(path)
	sif, err := im.Files.findSIF(ctx, run.OwnerID, path, item)
	switch {
	case err != nil:
	case digest != "" && digest != sif.Digest:
		err = sitepath.RefusedError("it is not the file with that digest any more: its digest is " + sif.Digest)
	default:
		err = sif.checkArchitecture(im.architecture(architecture))
	}
	if own, ok := errors.AsType[*transfer.Error](err); ok {
		return spool.Inputs{}, own
	}
	if err != nil {
		retry := sitepath.IsTransient(err)
		return spool.Inputs{}, &transfer.Error{What: "image " + reference, Err: err, Retry: retry, IsOutage: retry && transfer.IsDiskTrouble(err)}
	}
	item.Arrived()
	return spool.Inputs{
		SIF: sif.Path, PinnedReference: path + "@" + sif.Digest,
		SIFFile: &spool.SIFFile{Size: sif.Size, Modified: sif.Modified},
	}, nil
}

// findSIF finds a SIF and its digest. It reads the file unless its digest is on record.
func (f *Files) findSIF(ctx context.Context, owner, path string, item *transfer.Item) (sifFile, error) {
	const none = sitepath.RefusedError("this site does not use SIFs in place")
	if f == nil {
		return sifFile{}, none
	}
	roots := slices.Clone(f.Roots)
	if f.OwnerRoots != nil {
		more, err := f.OwnerRoots(ctx, owner)
		if err != nil {
			return sifFile{}, transfer.ServerError("image "+path, err)
		}
		roots = append(roots, more...)
	}
	if len(roots) == 0 {
		return sifFile{}, none
	}
	key := strings.Join(append(slices.Clone(roots), path), "\x00")
	t, leave := f.transfers.Join(key, turns.Party{Owner: owner})
	defer leave()
	item.Follow(t)
	return f.reads.Do(ctx, key, t.Done, func() (sifFile, error) {
		t, leave := f.transfers.Join(key, turns.Party{}) // the call may outlast its callers
		defer leave()
		return f.read(path, roots, t)
	})
}

// Open opens a file of an image to convert, such as a docker-archive, below one of the Roots. It is
// a source.Source's OpenFile.
func (f *Files) Open(path string) (*os.File, error) {
	file, err := source.FilesBelow(f.Roots...)(path)
	if err != nil {
		return nil, err
	}
	// This is the path of the opened file, even if links have changed.
	where, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err == nil {
		err = sitepath.CheckHidden(where, f.Hidden)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (s sifFile) checkArchitecture(architecture string) error {
	if s.Architecture == architecture || s.Architecture == "unknown" {
		return nil
	}
	return sitepath.RefusedError(fmt.Sprintf("it is made for linux/%s, not for linux/%s", s.Architecture, architecture))
}

// read resolves a path, and reads the digest of the SIF there.
func (f *Files) read(path string, roots []string, t *transfer.Transfer) (_ sifFile, err error) {
	where, err := sitepath.Place{Path: path, Roots: roots, Hidden: f.Hidden, Verb: "takes images from"}.Resolve()
	if err != nil {
		return sifFile{}, err
	}
	file, err := os.OpenFile(where, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrPermission) {
		return sifFile{}, sitepath.RefusedError("it may not be read")
	}
	if err != nil {
		return sifFile{}, fmt.Errorf("it cannot be read: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	now, err := identify(file, where)
	if err != nil {
		return sifFile{}, err
	}
	record := filepath.Join(f.Records, recordName(where)+".json")
	if known, ok := f.recall(record, now); ok {
		return known, nil
	}
	config, err := sifconfig.Read(where)
	switch {
	case err != nil && transfer.IsDiskTrouble(err):
		return sifFile{}, fmt.Errorf("it cannot be read: %w", err)
	case err != nil:
		return sifFile{}, sitepath.RefusedError(err.Error())
	}
	now.Architecture = config.Architecture
	t.SetStage(transfer.Reading)
	t.SetBytes(0, now.Size)
	sum := sha256.New()
	if _, err := io.Copy(sum, io.TeeReader(file, t)); err != nil {
		return sifFile{}, fmt.Errorf("it cannot be read: %w", err)
	}
	after, err := identify(file, where)
	if after.Architecture = now.Architecture; err == nil && after != now {
		err = errors.New("it changes while it is read")
	}
	if err != nil {
		return sifFile{}, err
	}
	now.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	f.remember(record, now)
	return now, nil
}

// identify returns a file's identity, without its digest.
func identify(file *os.File, path string) (sifFile, error) {
	info, err := file.Stat()
	if err != nil {
		return sifFile{}, fmt.Errorf("it cannot be read: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return sifFile{}, sitepath.RefusedError("it is not a file")
	}
	return sifFile{Path: path, Inode: st.Ino, Size: info.Size(), Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}, nil
}

// recall returns the record of a file, if the file has not changed.
func (f *Files) recall(record string, now sifFile) (known sifFile, ok bool) {
	if f.Records == "" {
		return known, false
	}
	if atomicfile.ReadJSON(record, &known) != nil {
		return known, false
	}
	now.Digest, now.Architecture = known.Digest, known.Architecture
	return known, now == known && known.Digest != ""
}

// remember writes the record of a file. If that fails, the file is read again next time.
func (f *Files) remember(record string, sif sifFile) {
	if f.Records == "" {
		return
	}
	if os.MkdirAll(f.Records, 0o700) == nil {
		_ = atomicfile.WriteJSON(record, sif)
	}
}
