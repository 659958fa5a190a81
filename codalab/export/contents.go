package export

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// errTooMany ends the contents of a bundle when the archive is full.
var errTooMany = errors.New("too many entries")

// contents adds the contents of a bundle, or notes why it has none.
func (e *Exporter) contents(ctx context.Context, b *Bundle) error {
	if b.LeftOut = e.without(*b); !e.hasContents(*b) {
		return nil
	}
	e.begin(*b)
	defer e.end()
	stream, err := e.from.OpenContents(ctx, codalab.Target{BundleUUID: b.UUID}, nil)
	switch {
	case codalab.IsStatus(err, 404): // a failed run may have none
		if b.Metadata.Int("data_size") > 0 {
			b.LeftOut = "the server does not find its contents"
		}
		return nil
	case codalab.IsStatus(err, 403):
		b.LeftOut = "you may not read its contents"
		return nil
	case err != nil:
		return fmt.Errorf("open the contents: %w", err)
	}
	defer func() { _ = stream.Close() }() // it was only read
	at := lastUpdate(b.Metadata)
	root := contentsName + b.UUID + "/"
	if e.full(0) {
		b.LeftOut = e.tooMany()
		return nil
	}
	if stream.Type == codalab.TargetFile {
		b.Contents = &Contents{Type: codalab.TargetFile, Path: root + fileName(b.Name())}
		return e.file(b.Contents.Path, 0o644, at, stream)
	}
	b.Contents = &Contents{Type: codalab.TargetDirectory, Path: root}
	u := unpacker{Exporter: e, uuid: b.UUID, root: root, links: map[string]string{}, skipped: map[string]bool{}}
	err = e.archive.directory(root, 0o755, at)
	if err == nil {
		err = u.unpack(stream)
	}
	if err == nil {
		err = u.copyLinks(ctx)
	}
	b.Note = u.note()
	if errors.Is(err, errTooMany) {
		b.Contents, b.LeftOut, b.Note, err = nil, e.tooMany(), "", nil
	}
	return err
}

// without is the reason for which the archive gets no contents of a bundle; empty if there may be some.
func (e *Exporter) without(b Bundle) string {
	switch {
	case b.LeftOut != "":
		return b.LeftOut
	case e.options.NoContents:
		return notWanted
	case !b.State.Final():
		return "it has not ended: it is " + string(b.State)
	}
	return ""
}

// hasContents reports whether the archive may get contents of a bundle. The data of a link stays where it is.
func (e *Exporter) hasContents(b Bundle) bool {
	return e.without(b) == "" && b.Metadata.String("link_url") == ""
}

// file adds a file of a bundle.
func (e *Exporter) file(name string, perm fs.FileMode, at time.Time, r io.Reader) error {
	return e.archive.file(name, perm, at, &counter{Reader: r, received: e.came})
}

// full reports whether the archive has as many entries as it may, with some that are still to come.
func (e *Exporter) full(waiting int) bool {
	return e.options.MostEntries > 0 && e.archive.entries+waiting >= e.options.MostEntries || e.archive.index > e.mostDirectory
}

func (e *Exporter) tooMany() string {
	if e.archive.index > e.mostDirectory {
		return fmt.Sprintf("the names of all files would have more than %s", codalab.FormatSize(mostDirectory))
	}
	return fmt.Sprintf("the archive would have more than %d files; cl export has no such bound", e.options.MostEntries)
}

// lastUpdate is the time of the files of a bundle that the server gives no time.
func lastUpdate(m codalab.Metadata) time.Time {
	if t := m.Time("last_updated"); !t.IsZero() {
		return t
	}
	return m.Time("created")
}

// fileName is the name of a bundle's only file. The server chooses it, so it must not lead to a directory.
func fileName(name string) string {
	if name = path.Base("/" + name); name == "/" || name == ".." || name == "." {
		return "file"
	}
	return strings.ReplaceAll(name, "\x00", "_")
}

// counter counts the bytes of a stream.
type counter struct {
	io.Reader
	received func(int64)
}

// Read reads on.
func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if c.received != nil && n > 0 {
		c.received(int64(n))
	}
	return n, err
}

// unpacker moves the entries of a bundle's directory from a tar archive into the ZIP archive.
type unpacker struct {
	*Exporter
	uuid, root string
	// links has the targets of symbolic links, by the names of tar entries.
	links map[string]string
	// later has further names of earlier files. They are read once the tar archive has ended: a server ends an answer from
	// which nobody reads for some minutes.
	later []hardLink
	// skipped has the names of pipes and devices, of which the first is example.
	skipped map[string]bool
	example string
}

// hardLink is another name of an earlier file.
type hardLink struct {
	name, earlier string
	perm          fs.FileMode
	at            time.Time
}

// unpack reads the tar archive to its end.
func (u *unpacker) unpack(r io.Reader) error {
	plain, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("read the contents: %w", err)
	}
	tr := tar.NewReader(plain)
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			// What is left shows whether the stream is whole.
			if _, err = io.Copy(io.Discard, plain); err != nil {
				err = fmt.Errorf("read the contents: %w", err)
			}
			return err
		}
		if err != nil {
			return fmt.Errorf("read the contents: %w", err)
		}
		if header.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		name := path.Clean(header.Name)
		if name == "." && header.Typeflag == tar.TypeDir {
			continue // it is there already
		}
		if !fs.ValidPath(strings.ToValidUTF8(name, "_")) || name == "." || strings.Contains(name, "\x00") {
			return fmt.Errorf("the server sent the name %q", header.Name)
		}
		if u.full(len(u.later)) {
			return errTooMany
		}
		if err := u.entry(name, header, tr); err != nil {
			return err
		}
	}
}

func (u *unpacker) entry(name string, header *tar.Header, content io.Reader) error {
	perm, at := fs.FileMode(header.Mode&0o777), header.ModTime
	switch header.Typeflag {
	case tar.TypeDir:
		return u.archive.directory(u.root+name+"/", perm, at)
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(u.root+name, perm, at, content)
	case tar.TypeSymlink:
		return u.link(name, header.Linkname, at)
	case tar.TypeLink:
		earlier := path.Clean(header.Linkname)
		if target, ok := u.links[earlier]; ok {
			return u.link(name, target, at)
		}
		if u.skipped[earlier] {
			u.skip(name)
			return nil
		}
		u.later = append(u.later, hardLink{name, earlier, perm, at})
		return nil
	case tar.TypeFifo, tar.TypeChar, tar.TypeBlock:
		u.skip(name)
		return nil
	}
	return fmt.Errorf("the server sent %q, which is no file", header.Name)
}

// link adds a symbolic link.
func (u *unpacker) link(name, target string, at time.Time) error {
	u.links[name] = target
	return u.archive.link(u.root+name, target, at)
}

// skip leaves out a pipe or a device.
func (u *unpacker) skip(name string) {
	if len(u.skipped) == 0 {
		u.example = name
	}
	u.skipped[name] = true
}

// note names the pipes and devices that were left out.
func (u *unpacker) note() string {
	name := strconv.Quote(u.example)
	switch n := len(u.skipped); {
	case n == 0:
		return ""
	case len(name) > mostRemark/3: // each character may take two in JSON
		return fmt.Sprintf("pipes and devices are left out: there are %d", n)
	case n == 1:
		return name + " is left out: it is a pipe or a device"
	default:
		return fmt.Sprintf("%s and %d more are left out: they are pipes or devices", name, n-1)
	}
}

// copyLinks adds the further names of earlier files, as copies.
func (u *unpacker) copyLinks(ctx context.Context) error {
	for _, l := range u.later {
		if u.full(0) {
			return errTooMany
		}
		if err := u.copyLink(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) copyLink(ctx context.Context, l hardLink) error {
	stream, err := u.from.OpenContents(ctx, codalab.Target{BundleUUID: u.uuid, Subpath: l.earlier}, nil)
	if err != nil {
		return fmt.Errorf("read %q again: %w", l.earlier, err)
	}
	defer func() { _ = stream.Close() }() // it was only read
	if stream.Type != codalab.TargetFile {
		return fmt.Errorf("read %q again: it is no file", l.earlier)
	}
	return u.file(u.root+l.name, l.perm, l.at, stream)
}

// joined is the path of a part of contents in the archive.
func joined(c Contents, subpath string) string {
	if subpath == "" || c.Type == codalab.TargetFile {
		return c.Path
	}
	return c.Path + subpath
}

// address is a path in the archive as a URL.
func address(p string) string { return (&url.URL{Path: p}).EscapedPath() }
