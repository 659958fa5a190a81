package apptainer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/flatten"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// treeWriter is a mksquashfs that reads only directories. A file of pseudo definitions
// (mksquashfs(1)) gives it the owners, modes and devices, which an ordinary user cannot make. File
// capabilities, user extended attributes and the time stamps of devices are lost.
type treeWriter struct{ Converter }

func (w treeWriter) write(ctx context.Context, f *os.File, offset int64, flat *flatten.Flattener) (_ int64, err error) {
	dir := f.Name() + ".tree"
	if err := filetree.Remove(dir); err != nil { // an earlier process may have left it
		return 0, fmt.Errorf("unpack: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, fmt.Errorf("unpack: %w", err)
	}
	defer func() { err = errors.Join(err, filetree.Remove(dir)) }()
	t := &tree{dir: filepath.Join(dir, "root"), devices: map[string]*tar.Header{}}
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return 0, fmt.Errorf("unpack: %w", err)
	}
	if err := w.stream(ctx, flat, t.unpack); err != nil {
		return 0, err
	}
	// A pseudo definition cannot describe the root.
	newest := time.Unix(flat.Root().Newest, 0)
	err = errors.Join(os.Chtimes(t.dir, newest, newest), unix.Chmod(t.dir, uint32(flat.Root().Mode)|0o500)) //nolint:gosec // twelve bits
	if err != nil {
		return 0, fmt.Errorf("unpack: %w", err)
	}
	definitions := filepath.Join(dir, "pseudo")
	if err := os.WriteFile(definitions, []byte(strings.Join(t.pseudo, "\n")+"\n"), 0o600); err != nil {
		return 0, fmt.Errorf("unpack: %w", err)
	}
	made := f.Name() + ".squashfs"
	args := append([]string{w.Mksquashfs, t.dir, made}, w.mksquashfsOptions()...)
	err = command.Command{Args: append(args, "-no-xattrs", "-pf", definitions)}.Run(ctx)
	if err != nil && ctx.Err() == nil {
		err = programError(err)
	}
	return moveInto(f, offset, made, err)
}

// tree is the directory into which a tar stream is unpacked.
type tree struct {
	dir     string
	pseudo  []string               // the lines of the pseudo definitions
	dirs    []*tar.Header          // directories get their time stamps last
	devices map[string]*tar.Header // only in the pseudo definitions
}

// unpack reads the stream to its end.
func (t *tree) unpack(ctx context.Context, r *os.File) error {
	err := t.entries(ctx, tar.NewReader(r))
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	for _, hdr := range slices.Backward(t.dirs) {
		if err := t.setTime(hdr); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) entries(ctx context.Context, tr *tar.Reader) error {
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		hdr.Name = path.Clean(hdr.Name)
		if strings.ContainsRune(hdr.Name, '\n') {
			return fmt.Errorf("the name %q holds a line break, which cannot be given to mksquashfs before 4.5", hdr.Name)
		}
		if err := t.entry(hdr, tr); err != nil {
			return fmt.Errorf("%q: %w", hdr.Name, err)
		}
	}
}

// entry makes one name. Names of a flat stream lead only through real directories, and none comes
// twice.
func (t *tree) entry(hdr *tar.Header, content io.Reader) error {
	at := t.path(hdr.Name)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return err
	}
	var err error
	switch hdr.Typeflag {
	case tar.TypeDir:
		err = os.MkdirAll(at, 0o700)
		t.dirs = append(t.dirs, hdr)
	case tar.TypeReg:
		err = copyTo(at, content)
	case tar.TypeLink:
		if device := t.devices[hdr.Linkname]; device != nil { // pseudo definitions have no links
			again := *device
			again.Name = hdr.Name
			t.defineDevice(&again)
			return nil
		}
		return os.Link(t.path(hdr.Linkname), at)
	case tar.TypeSymlink:
		err = os.Symlink(hdr.Linkname, at)
	case tar.TypeFifo:
		err = unix.Mkfifo(at, 0o600)
	case tar.TypeChar, tar.TypeBlock:
		t.defineDevice(hdr)
		t.devices[hdr.Name] = hdr
		return nil
	}
	if err != nil {
		return err
	}
	t.define(hdr, "m")
	return t.setTime(hdr)
}

func (t *tree) path(name string) string { return filepath.Join(t.dir, path.Clean("/"+name)) }

// define adds a line to the pseudo definitions.
func (t *tree) define(hdr *tar.Header, kind string, more ...string) {
	name := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(hdr.Name) + `"`
	fields := append([]string{name, kind, strconv.FormatInt(hdr.Mode, 8), strconv.Itoa(hdr.Uid), strconv.Itoa(hdr.Gid)}, more...)
	t.pseudo = append(t.pseudo, strings.Join(fields, " "))
}

func (t *tree) defineDevice(hdr *tar.Header) {
	kind := map[byte]string{tar.TypeChar: "c", tar.TypeBlock: "b"}[hdr.Typeflag]
	t.define(hdr, kind, strconv.FormatInt(hdr.Devmajor, 10), strconv.FormatInt(hdr.Devminor, 10))
}

func (t *tree) setTime(hdr *tar.Header) error {
	modified := unix.NsecToTimespec(hdr.ModTime.UnixNano())
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, t.path(hdr.Name), []unix.Timespec{modified, modified}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set the time stamp of %q: %w", hdr.Name, err)
	}
	return nil
}

func copyTo(name string, content io.Reader) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
