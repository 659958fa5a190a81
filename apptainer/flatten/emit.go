package flatten

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// writeRest writes the entries of the plan that are not written yet: files of each layer in its
// order, further names of files, then symbolic links, devices and fifos, and directories last.
func (f *Flattener) writeRest(ctx context.Context, tw *scannedStream) error {
	for i, files := range f.plan.files {
		left, err := f.linkWritten(tw, i, files)
		if err != nil {
			return err
		}
		if left == 0 {
			continue
		}
		r, err := f.open(ctx, i)
		if err == nil {
			err = f.writeMissing(tw, r, i, left)
			err = errors.Join(err, r.Close())
		}
		if err != nil {
			return fmt.Errorf("read layer %d again: %w", i+1, err)
		}
	}
	if err := f.writeOther(tw); err != nil {
		return err
	}
	for _, d := range f.plan.dirs {
		if err := tw.WriteHeader(d.header(d.name)); err != nil {
			return fmt.Errorf("write %s: %w", quoted(d.name), err)
		}
	}
	return f.others.addDirs(f.plan.dirs)
}

func (f *Flattener) open(ctx context.Context, i int) (io.ReadCloser, error) {
	if i == f.layers.Number {
		return io.NopCloser(bytes.NewReader(f.top)), nil
	}
	return f.layers.Open(ctx, i)
}

// linkWritten writes the further names of a layer's written files, and returns the number of files
// that are not written.
func (f *Flattener) linkWritten(tw *scannedStream, i int, files map[int][]string) (left int, err error) {
	if i == f.layers.Number {
		return len(files), nil
	}
	for _, file := range f.written[i] {
		for _, name := range files[file.ordinal] {
			if name == file.name {
				continue
			}
			if err := tw.WriteHeader(hardLink(name, file.name)); err != nil {
				return 0, fmt.Errorf("write link %s: %w", quoted(name), err)
			}
			if err := f.others.addLink(name, file.name); err != nil {
				return 0, fmt.Errorf("write link %s: %w", quoted(name), err)
			}
		}
	}
	return len(files) - len(f.written[i]), nil
}

// writeMissing writes the files of a layer that are not written yet. left is their number.
func (f *Flattener) writeMissing(tw *scannedStream, r io.Reader, i, left int) error {
	var written []writtenFile
	if i < f.layers.Number {
		written = f.written[i]
	}
	tr := tar.NewReader(r)
	for ordinal := 0; left > 0; ordinal++ {
		hdr, err := tr.Next()
		if err != nil {
			return fmt.Errorf("entry %d: %w", ordinal, err)
		}
		if len(written) > 0 && written[0].ordinal == ordinal {
			written = written[1:]
			continue
		}
		names := f.plan.files[i][ordinal]
		if len(names) == 0 {
			continue
		}
		left--
		e, err := newEntry(hdr)
		if err != nil {
			return err
		}
		if err := f.writeFile(tw, tr, e, names...); err != nil {
			return fmt.Errorf("%s: %w", quoted(names[0]), err)
		}
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

func (f *Flattener) writeOther(tw *scannedStream) error {
	first := map[*inode]string{}
	for _, o := range f.plan.other {
		hdr := o.header(o.name)
		if name, again := first[o.inode]; again {
			hdr = hardLink(o.name, name)
		} else {
			first[o.inode] = o.name
		}
		err := tw.WriteHeader(hdr)
		if err == nil && f.others.takes(o.entry) {
			err = f.others.add(o.entry, o.name)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", quoted(o.name), err)
		}
	}
	return nil
}

// writeFile writes a file: its content under the first name, links under the others.
func (f *Flattener) writeFile(tw *scannedStream, content io.Reader, e entry, names ...string) error {
	if err := tw.WriteHeader(e.header(names[0])); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if f.others.takes(e) {
		if err := f.others.add(e, names[0]); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		content = f.others.copy(content)
	}
	if _, err := io.CopyBuffer(tw, content, f.buffer); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	for _, name := range names[1:] {
		err := tw.WriteHeader(hardLink(name, names[0]))
		if err == nil {
			err = f.others.addLink(name, names[0])
		}
		if err != nil {
			return fmt.Errorf("write link %s: %w", quoted(name), err)
		}
	}
	return nil
}

// header returns the tar header of e under another name.
func (e entry) header(name string) *tar.Header {
	hdr := &tar.Header{
		Typeflag: e.kind,
		Name:     name,
		Linkname: e.link,
		Mode:     e.mode,
		Uid:      e.uid,
		Gid:      e.gid,
		ModTime:  time.Unix(e.mtime, 0),
		Size:     e.size,
		Devmajor: e.major,
		Devminor: e.minor,
	}
	if e.kind == tar.TypeDir {
		hdr.Name += "/"
	}
	if len(e.attributes) > 0 {
		hdr.PAXRecords = make(map[string]string, len(e.attributes))
		for attribute, value := range e.attributes {
			hdr.PAXRecords[attributePrefix+attribute] = value
		}
	}
	return hdr
}

func hardLink(name, target string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}
}
