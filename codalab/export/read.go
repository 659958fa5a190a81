package export

import (
	"archive/zip"
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/interruptible"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// maxLink is the longest target of a symbolic link, in bytes: that of Linux.
const maxLink = 4096

// Archive is an exported worksheet. It is made by Open, and safe for concurrent use.
type Archive struct {
	Description
	// Size is the size of all files before they were packed, as the archive states it. Nobody gets more bytes.
	Size int64
	// files are the regular files, by name, and digests those of the manifest.
	files   map[string]*zip.File
	digests map[string]digest
	// entries are those of each bundle's contents, by its uuid.
	entries map[string][]*zip.File
}

// wrong is the error for an archive that Open refuses.
func wrong(format string, args ...any) error {
	return fmt.Errorf("the archive is refused: "+format, args...)
}

// Open reads what an archive of size bytes holds, and refuses one that is hostile or damaged. It must not change until the
// Archive is no longer used.
func Open(r io.ReaderAt, size int64) (*Archive, error) {
	in, err := tarstream.OpenZip(r, size, mostDirectory)
	if err != nil {
		return nil, wrong("%w", err)
	}
	a := &Archive{files: map[string]*zip.File{}, digests: map[string]digest{}, entries: map[string][]*zip.File{}}
	if err := checkNames(in.File); err != nil {
		return nil, wrong("%w", err)
	}
	for _, f := range in.File {
		if f.UncompressedSize64 > 1<<60 || a.Size > 1<<60 {
			return nil, wrong("%q states a size of %d bytes", f.Name, f.UncompressedSize64)
		}
		a.Size += int64(f.UncompressedSize64)
		if f.Mode().IsRegular() {
			a.files[f.Name] = f
		}
		if below, ok := strings.CutPrefix(f.Name, contentsName); ok {
			uuid, rest, _ := strings.Cut(below, "/")
			if rest != "" {
				a.entries[uuid] = append(a.entries[uuid], f)
			}
		}
	}
	if err := errors.Join(a.readManifest(), a.readDescription()); err != nil {
		return nil, wrong("%w", err)
	}
	return a, nil
}

// checkNames refuses names that lead out of the archive, are there twice, or pass through a file or a link.
func checkNames(files []*zip.File) error {
	sorted := make([]*zip.File, len(files))
	copy(sorted, files)
	for _, f := range files {
		if err := checkName(f); err != nil {
			return err
		}
	}
	// A slash comes before all else, so that what is below a name comes right behind it.
	slices.SortFunc(sorted, func(a, b *zip.File) int { return comparePaths(plainName(a), plainName(b)) })
	for i := 1; i < len(sorted); i++ {
		before, name := sorted[i-1], plainName(sorted[i])
		switch {
		case plainName(before) == name:
			return fmt.Errorf("%q is there twice", name)
		case !before.Mode().IsDir() && strings.HasPrefix(name, plainName(before)+"/"):
			return fmt.Errorf("%q is below %q, which is no directory", name, before.Name)
		}
	}
	return nil
}

// plainName is the name of an entry without the slash of a directory.
func plainName(f *zip.File) string { return strings.TrimSuffix(f.Name, "/") }

// comparePaths orders names so that all names below a directory follow it.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		if a[i] == '/' {
			return -1
		}
		if b[i] == '/' {
			return 1
		}
		return cmp.Compare(a[i], b[i])
	}
	return cmp.Compare(len(a), len(b))
}

// checkName refuses an entry that Write does not write.
func checkName(f *zip.File) error {
	name, mode := plainName(f), f.Mode()
	const encrypted = 1
	switch {
	case path.Clean(name) != name || path.IsAbs(name) || name == "." || name == ".." || strings.HasPrefix(name, "../") || strings.Contains(name, "\x00"):
		return fmt.Errorf("the name %q leads out of it", f.Name)
	case strings.HasSuffix(f.Name, "/") != mode.IsDir():
		return fmt.Errorf("%q is a directory by its name alone", f.Name)
	case !mode.IsRegular() && !mode.IsDir() && mode.Type() != fs.ModeSymlink:
		return fmt.Errorf("%q is no file", f.Name)
	case f.Flags&encrypted != 0 || f.Method != zip.Store && f.Method != zip.Deflate:
		return fmt.Errorf("%q is packed in a way that is not supported", f.Name)
	case !mode.IsRegular() && !strings.HasPrefix(f.Name, contentsName):
		return fmt.Errorf("%q is no file", f.Name)
	case mode.Type() == fs.ModeSymlink && f.UncompressedSize64 > maxLink:
		return fmt.Errorf("%q is a link of %d bytes", f.Name, f.UncompressedSize64)
	}
	return nil
}

// readManifest reads the digests, which must be those of exactly the files of the archive.
func (a *Archive) readManifest() error {
	f := a.files[manifestName]
	if f == nil {
		return fmt.Errorf("it has no %s", manifestName)
	}
	stream, err := open(f)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }() // it was only read
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, sum, ok := readManifestLine(lines.Text())
		if !ok {
			return fmt.Errorf("its manifest has the line %.100q", lines.Text())
		}
		if _, twice := a.digests[name]; twice || a.files[name] == nil || name == manifestName {
			return fmt.Errorf("its manifest names %q, which is there twice or not at all", name)
		}
		a.digests[name] = sum
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the manifest: %w", err)
	}
	for name := range a.files {
		if _, ok := a.digests[name]; !ok && name != manifestName {
			return fmt.Errorf("its manifest does not name %q", name)
		}
	}
	return nil
}

func (a *Archive) readDescription() error {
	f := a.files[descriptionName]
	if f == nil {
		return fmt.Errorf("it has no %s: it is no exported worksheet", descriptionName)
	}
	stream, err := open(f)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }() // it was only read
	if err := json.NewDecoder(&weigher{Reader: stream}).Decode(&a.Description); err != nil {
		return fmt.Errorf("read %s: %w", descriptionName, err)
	}
	if err := a.check(); err != nil {
		return fmt.Errorf("read %s: %w", descriptionName, err)
	}
	for _, b := range a.Bundles {
		if c := b.Contents; c != nil && !strings.HasSuffix(c.Path, "/") && (a.files[c.Path] == nil || len(a.entries[b.UUID]) != 1) {
			return fmt.Errorf("bundle %s is a file, but not at %q alone", b.UUID, c.Path)
		}
	}
	return nil
}

// open returns the bytes of an entry. Package zip gives an error in place of more than the entry states.
func open(f *zip.File) (io.ReadCloser, error) {
	stream, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", f.Name, err)
	}
	return stream, nil
}

// Verify compares the digests of all files with those of the manifest. Progress is called with numbers of bytes.
func (a *Archive) Verify(ctx context.Context, progress func(n int64)) error {
	buf := make([]byte, 256<<10)
	for name, want := range a.digests {
		stream, err := open(a.files[name])
		if err != nil {
			return wrong("%w", err)
		}
		sum := sha256.New()
		counted := &counter{Reader: interruptible.Reader(ctx, stream), received: progress}
		_, err = io.CopyBuffer(struct{ io.Writer }{sum}, counted, buf)
		_ = stream.Close() // it was only read
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return wrong("read %q: %w", name, err)
		}
		if digest(sum.Sum(nil)) != want {
			return wrong("%q has another digest than its manifest says", name)
		}
	}
	return nil
}
