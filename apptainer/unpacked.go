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

// unpacked is a mksquashfs that takes directories only. Owners, modes and
// devices, which an ordinary user cannot give to files, are told it in a file of
// pseudo definitions (mksquashfs(1)); file capabilities, attributes of users and
// the time stamps of devices are lost.
type unpacked struct{ Converter }

func (u unpacked) write(ctx context.Context, f *os.File, offset int64, flat *flatten.Flattener) (_ int64, err error) {
	dir := f.Name() + ".tree"
	if err := filetree.Remove(dir); err != nil { // what a killed one has left
		return 0, fmt.Errorf("unpack: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, fmt.Errorf("unpack: %w", err)
	}
	defer func() { err = errors.Join(err, filetree.Remove(dir)) }()
	t := &unpacking{nicely: u.nicely, dir: filepath.Join(dir, "root"), devices: map[string]*tar.Header{}}
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return 0, fmt.Errorf("unpack: %w", err)
	}
	if err := t.unpack(ctx, flat); err != nil {
		return 0, err
	}
	// The root is in no pseudo definition.
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
	args := append([]string{u.mksquashfsProgram(), t.dir, made}, u.mksquashfsOptions()...)
	err = command.Command{Args: append(args, "-no-xattrs", "-pf", definitions)}.Run(ctx)
	if err != nil && ctx.Err() == nil {
		err = toolError(err)
	}
	return takeIn(f, offset, made, err)
}

// unpacking unpacks a flat tar stream into a directory.
type unpacking struct {
	nicely func(func())
	dir    string
	pseudo []string
	dirs   []*tar.Header // whose time stamps are set at last
	// devices are those that the definitions make, by name.
	devices map[string]*tar.Header
}

func (u *unpacking) unpack(ctx context.Context, flat *flatten.Flattener) error {
	r, w := io.Pipe()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	emitted := make(chan error, 1)
	go u.nicely(func() {
		err := flat.Write(running, w)
		emitted <- err
		_ = w.CloseWithError(err)
	})
	err := u.entries(ctx, tar.NewReader(r))
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	cancel() // Write need not wait for layers any more
	_ = r.CloseWithError(errNotRead)
	ended := err != nil
	if emitErr := <-emitted; emitErr != nil && !errors.Is(emitErr, errNotRead) && (!ended || !errors.Is(emitErr, context.Canceled)) {
		return emitErr
	}
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	for _, hdr := range slices.Backward(u.dirs) {
		if err := u.date(hdr); err != nil {
			return err
		}
	}
	return nil
}

// errNotRead ends a stream that is read no more.
var errNotRead = errors.New("nobody reads it any more")

func (u *unpacking) entries(ctx context.Context, tr *tar.Reader) error {
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err //nolint:wrapcheck // worded by unpack
		}
		hdr.Name = path.Clean(hdr.Name)
		if strings.ContainsRune(hdr.Name, '\n') {
			return fmt.Errorf("the name %q holds a line break, which mksquashfs before 4.5 cannot be told of", hdr.Name)
		}
		if err := u.entry(hdr, tr); err != nil {
			return fmt.Errorf("%q: %w", hdr.Name, err)
		}
	}
}

// entry makes one name. Names of a flat stream lead through real directories
// only, and none comes twice.
func (u *unpacking) entry(hdr *tar.Header, content io.Reader) error {
	at := u.path(hdr.Name)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return err
	}
	var err error
	switch hdr.Typeflag {
	case tar.TypeDir:
		err = os.MkdirAll(at, 0o700)
		u.dirs = append(u.dirs, hdr)
	case tar.TypeReg:
		err = copyTo(at, content)
	case tar.TypeLink:
		if device := u.devices[hdr.Linkname]; device != nil {
			again := *device
			again.Name = hdr.Name
			u.defineDevice(&again)
			return nil
		}
		return os.Link(u.path(hdr.Linkname), at)
	case tar.TypeSymlink:
		err = os.Symlink(hdr.Linkname, at)
	case tar.TypeFifo:
		err = unix.Mkfifo(at, 0o600)
	case tar.TypeChar, tar.TypeBlock:
		u.defineDevice(hdr)
		u.devices[hdr.Name] = hdr
		return nil
	}
	if err != nil {
		return err
	}
	u.define(hdr, "m")
	return u.date(hdr)
}

// path is where a name of a flat stream is unpacked to: those are clean.
func (u *unpacking) path(name string) string { return filepath.Join(u.dir, path.Clean("/"+name)) }

// define adds a line to the pseudo definitions.
func (u *unpacking) define(hdr *tar.Header, kind string, more ...string) {
	name := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(hdr.Name) + `"`
	fields := append([]string{name, kind, strconv.FormatInt(hdr.Mode, 8), strconv.Itoa(hdr.Uid), strconv.Itoa(hdr.Gid)}, more...)
	u.pseudo = append(u.pseudo, strings.Join(fields, " "))
}

// defineDevice adds a device to the pseudo definitions, which know of no links.
func (u *unpacking) defineDevice(hdr *tar.Header) {
	kind := map[byte]string{tar.TypeChar: "c", tar.TypeBlock: "b"}[hdr.Typeflag]
	u.define(hdr, kind, strconv.FormatInt(hdr.Devmajor, 10), strconv.FormatInt(hdr.Devminor, 10))
}

// date gives a name its time stamp.
func (u *unpacking) date(hdr *tar.Header) error {
	at := []unix.Timespec{unix.NsecToTimespec(hdr.ModTime.UnixNano()), unix.NsecToTimespec(hdr.ModTime.UnixNano())}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, u.path(hdr.Name), at, unix.AT_SYMLINK_NOFOLLOW); err != nil {
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
