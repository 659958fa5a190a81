package export

import (
	"archive/tar"
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// Bundle returns a bundle as a client of a server does. A missing one, and one of which the archive knows nothing, is a
// *codalab.Error with status 404.
func (a *Archive) Bundle(_ context.Context, uuid string, _ ...string) (client.BundleInfo, error) {
	for _, b := range a.Bundles {
		if b.UUID == uuid && b.Type != "" {
			return client.BundleInfo{Bundle: codalab.Bundle{
				UUID: b.UUID, Type: b.Type, State: b.State, Command: b.Command, Metadata: b.Metadata, Dependencies: b.Dependencies,
				Platform: b.Platform,
			}}, nil
		}
	}
	return client.BundleInfo{}, absent(uuid)
}

// SizeOf is the size of a bundle's files before they were packed, as the archive states it.
func (a *Archive) SizeOf(uuid string) (size int64) {
	for _, f := range a.entries[uuid] {
		size += int64(f.UncompressedSize64) //nolint:gosec // Open has checked it
	}
	return size
}

// absent is the error for what is not in the archive.
func absent(uuid string) error {
	return &codalab.Error{Method: http.MethodGet, Path: uuid, Status: http.StatusNotFound, Message: "the archive does not have it"}
}

// OpenContents opens the contents of a bundle as a client of a server does, but neither a part nor a section of them. Verify
// has to come before.
func (a *Archive) OpenContents(_ context.Context, t codalab.Target, _ *client.Range) (*client.Contents, error) {
	for _, b := range a.Bundles {
		switch c := b.Contents; {
		case b.UUID != t.BundleUUID || c == nil:
		case c.Type == codalab.TargetFile:
			f := a.files[c.Path]
			stream, err := open(f)
			if err != nil {
				return nil, err
			}
			return &client.Contents{ReadCloser: stream, Type: codalab.TargetFile, Size: int64(f.UncompressedSize64)}, nil //nolint:gosec // Open has checked it
		default:
			return &client.Contents{ReadCloser: packed(a.entries[b.UUID], c.Path), Type: codalab.TargetDirectory, Size: -1}, nil
		}
	}
	return nil, absent(t.BundleUUID)
}

// pipe is a stream that is written while it is read.
type pipe struct {
	*io.PipeReader
	writer sync.WaitGroup
}

// Close ends the writing.
func (p *pipe) Close() error {
	err := p.PipeReader.Close()
	p.writer.Wait()
	return err
}

// packed returns entries below a directory as a compressed tar archive.
func packed(entries []*zip.File, root string) io.ReadCloser {
	r, w := io.Pipe()
	p := &pipe{PipeReader: r}
	p.writer.Go(func() { _ = w.CloseWithError(pack(w, entries, root)) }) // never fails
	return p
}

func pack(w io.Writer, entries []*zip.File, root string) error {
	zw, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("pack contents: %w", err)
	}
	tw := tar.NewWriter(zw)
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}); err != nil {
		return fmt.Errorf("pack contents: %w", err)
	}
	for _, f := range entries {
		if err := packEntry(tw, f, root); err != nil {
			return fmt.Errorf("pack %q: %w", f.Name, err)
		}
	}
	return errors.Join(tw.Close(), zw.Close())
}

func packEntry(tw *tar.Writer, f *zip.File, root string) error {
	h := &tar.Header{
		Name: "./" + strings.TrimPrefix(f.Name, root), Mode: int64(f.Mode().Perm()), ModTime: f.Modified,
		Typeflag: tar.TypeReg, Size: int64(f.UncompressedSize64), //nolint:gosec // Open has checked it
	}
	if f.Mode().IsDir() {
		h.Typeflag, h.Size = tar.TypeDir, 0
		return tw.WriteHeader(h)
	}
	content, err := open(f)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // it was only read
	if f.Mode().Type() == fs.ModeSymlink {
		target, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		h.Typeflag, h.Size, h.Linkname = tar.TypeSymlink, 0, string(target)
		return tw.WriteHeader(h)
	}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(tw, content)
	return err
}
