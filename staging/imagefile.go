package staging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/spool"
)

// ImageFiles are SIFs on the shared disk that bundles run in where they lie:
// nothing is copied. It is safe for concurrent use; its exported fields are not
// changed once it is used.
//
// A SIF may be used when it lies below a root for images, or below a root of
// links that its bundle's owner may use (InPlace), and this process may read it.
// That is judged by where its path leads with symbolic links followed. The worker
// looks at it again, and runs nothing in a file that has changed.
type ImageFiles struct {
	// Roots are directories whose SIFs every bundle may run in.
	Roots []string
	// Hidden are files and directories that no SIF may lie in.
	Hidden []string
	// InPlace has the roots of links; nil for none.
	InPlace *InPlace
	// Records is a directory where digests are remembered; empty remembers none
	// beyond this process.
	Records string

	mu      sync.Mutex
	reading map[string]*reading // by path
}

// digested is a SIF whose digest is known. All but Digest and Architecture say
// which file it was, and that it has not been written to since.
type digested struct {
	Path         string `json:"path"`
	Inode        uint64 `json:"inode"`
	Size         int64  `json:"size"`
	Modified     int64  `json:"modified"` // nanoseconds since 1970, as Changed
	Changed      int64  `json:"changed"`
	Digest       string `json:"digest"`
	Architecture string `json:"architecture"`
}

// reading is the reading of one file, and who wait for it.
type reading struct {
	download *download
	done     chan struct{} // closed at its end, after which the rest is set
	found    digested
	err      error
}

// isImageFile takes the name of a SIF on the shared disk apart: its path, and the
// digest that it is to have, if the name says.
func isImageFile(name string) (path, digest string, ok bool) {
	path, digest, _ = strings.Cut(name, "@")
	return filepath.Clean(path), digest, strings.HasPrefix(path, "/") && strings.HasSuffix(path, ".sif")
}

// imageFile finds the SIF that a run is to run in where it lies.
func (s *Stager) imageFile(ctx context.Context, run codalab.RunBundle, name, architecture string, p *part) (spool.Inputs, error) {
	path, digest, _ := isImageFile(name)
	found, err := s.Images.Files.find(ctx, run.OwnerID, path, p)
	switch {
	case err != nil:
	case digest != "" && digest != found.Digest:
		err = refusal("it is not the file with that digest any more: its digest is " + found.Digest)
	default:
		err = fits(found, s.Images.architecture(architecture))
	}
	var own *Error
	if errors.As(err, &own) {
		return spool.Inputs{}, own
	}
	if err != nil {
		return spool.Inputs{}, &Error{What: "image " + name, Err: err, Retry: transient(err), Away: transient(err) && troubled(err)}
	}
	p.arrived()
	return spool.Inputs{
		Image: found.Path, ImageDigest: path + "@" + found.Digest,
		ImageFile: &spool.ImageFile{Size: found.Size, Modified: found.Modified},
	}, nil
}

// find finds a SIF, and its digest, which is read from the file unless it is
// remembered. A refusal is final, other errors are not.
func (f *ImageFiles) find(ctx context.Context, owner, path string, p *part) (digested, error) {
	if f == nil {
		return digested{}, refusal("this site uses no SIFs where they lie")
	}
	roots := slices.Clone(f.Roots)
	if f.InPlace != nil {
		more, err := f.InPlace.rootsOf(ctx, owner)
		if err != nil {
			return digested{}, serverError("image "+path, err)
		}
		roots = append(roots, more...)
	}
	if len(roots) == 0 {
		return digested{}, refusal("this site uses no SIFs where they lie")
	}
	r := f.join(path, roots)
	p.follow(r.download)
	timer := time.NewTimer(lookWithin)
	defer timer.Stop()
	for last := int64(-1); ; {
		select {
		case <-r.done:
			return r.found, r.err
		case <-ctx.Done():
			return digested{}, ctx.Err()
		case <-timer.C:
			now := r.download.done.Load()
			if now == last {
				return digested{}, fmt.Errorf("the disk has not answered for %s", lookWithin)
			}
			last = now
			timer.Reset(lookWithin)
		}
	}
}

// Open opens a file of an image that is to be converted, such as a docker-archive,
// below one of the roots that are for all. It is a source.Source's OpenFile.
func (f *ImageFiles) Open(path string) (*os.File, error) {
	file, err := source.FilesBelow(f.Roots...)(path)
	if err != nil {
		return nil, err
	}
	// Where it is by now, whoever changes the path meanwhile.
	where, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err == nil {
		err = spot{hidden: f.Hidden}.checkHidden(where)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// fits refuses a SIF for other nodes.
func fits(d digested, architecture string) error {
	if d.Architecture == architecture || d.Architecture == "unknown" {
		return nil
	}
	return refusal(fmt.Sprintf("it is made for linux/%s, not for linux/%s", d.Architecture, architecture))
}

// join returns the reading of a file that is under way, or begins one. It ends
// when the disk answers, which may be after whoever asked has gone: a disk that
// hangs is to hold no more than one goroutine for each file.
func (f *ImageFiles) join(path string, roots []string) *reading {
	key := strings.Join(append(roots, path), "\x00")
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.reading[key]; r != nil {
		return r
	}
	r := &reading{download: &download{}, done: make(chan struct{})}
	if f.reading == nil {
		f.reading = map[string]*reading{}
	}
	f.reading[key] = r
	go func() {
		r.found, r.err = f.read(path, roots, r.download)
		f.mu.Lock()
		delete(f.reading, key)
		f.mu.Unlock()
		close(r.done)
	}()
	return r
}

// read resolves a path, and makes sure that a SIF with one known digest is there.
func (f *ImageFiles) read(path string, roots []string, d *download) (_ digested, err error) {
	where, err := spot{link: path, roots: roots, hidden: f.Hidden, use: "takes images from"}.resolve()
	if err != nil {
		return digested{}, err
	}
	file, err := os.OpenFile(where, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrPermission) {
		return digested{}, refusal("it may not be read")
	}
	if err != nil {
		return digested{}, fmt.Errorf("it cannot be read: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	now, err := lookAt(file, where)
	if err != nil {
		return digested{}, err
	}
	record := filepath.Join(f.Records, recordName(where)+".json")
	if known, ok := f.remembered(record, now); ok {
		return known, nil
	}
	config, err := sifconfig.Read(where)
	switch {
	case err != nil && troubled(err):
		return digested{}, fmt.Errorf("it cannot be read: %w", err)
	case err != nil:
		return digested{}, refusal(err.Error())
	}
	now.Architecture = config.Architecture
	d.doing.Store(int32(reviewing))
	d.total.Store(now.Size)
	sum := sha256.New()
	if _, err := io.Copy(sum, io.TeeReader(file, (*tallied)(d))); err != nil {
		return digested{}, fmt.Errorf("it cannot be read: %w", err)
	}
	after, err := lookAt(file, where)
	if after.Architecture = now.Architecture; err == nil && after != now {
		err = errors.New("it changes while it is read")
	}
	if err != nil {
		return digested{}, err
	}
	now.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	f.remember(record, now)
	return now, nil
}

// tallied counts what is read of a download.
type tallied download

func (c *tallied) Write(b []byte) (int, error) {
	(*download)(c).done.Add(int64(len(b)))
	return len(b), nil
}

// lookAt tells which file this is, without its digest.
func lookAt(file *os.File, path string) (digested, error) {
	info, err := file.Stat()
	if err != nil {
		return digested{}, fmt.Errorf("it cannot be read: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return digested{}, refusal("it is not a file")
	}
	return digested{Path: path, Inode: st.Ino, Size: info.Size(), Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}, nil
}

// remembered is what was found of a file that has not changed since.
func (f *ImageFiles) remembered(record string, now digested) (known digested, ok bool) {
	if f.Records == "" {
		return known, false
	}
	data, err := os.ReadFile(record)
	if err != nil || json.Unmarshal(data, &known) != nil {
		return known, false
	}
	now.Digest, now.Architecture = known.Digest, known.Architecture
	return known, now == known && known.Digest != ""
}

// remember notes a digest. That fails without a word: it is only read again.
func (f *ImageFiles) remember(record string, found digested) {
	if f.Records == "" {
		return
	}
	if data, err := json.Marshal(found); err == nil && os.MkdirAll(f.Records, 0o700) == nil {
		_ = atomicfile.Write(record, append(data, '\n'), 0o600)
	}
}
