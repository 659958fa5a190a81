package apptainer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"time"
)

// emit writes the planned file system to w as one tar stream: directories,
// then whatever has no content, then the files of each layer in the layer's
// own order, every hard link right after its file. open gives the tar stream
// of a layer; layers of which nothing is left are not opened.
func (p plan) emit(w io.Writer, open func(layer int) (io.ReadCloser, error)) error {
	tw := tar.NewWriter(w)
	for _, d := range p.dirs {
		if err := tw.WriteHeader(d.header(d.name)); err != nil {
			return fmt.Errorf("write %q: %w", d.name, err)
		}
	}
	if err := p.emitOther(tw); err != nil {
		return err
	}
	for layer, files := range p.files {
		if len(files) == 0 {
			continue
		}
		r, err := open(layer)
		if err != nil {
			return err
		}
		err = emitFiles(tw, r, files)
		if err = errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("read layer %d: %w", layer+1, err)
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("end the tar stream: %w", err)
	}
	return nil
}

// emitOther writes what has neither content nor children.
func (p plan) emitOther(tw *tar.Writer) error {
	first := map[*inode]string{}
	for _, o := range p.other {
		hdr := o.header(o.name)
		if name, again := first[o.inode]; again {
			hdr = hardLink(o.name, name)
		} else {
			first[o.inode] = o.name
		}
		if err := tw.WriteHeader(hdr); err != nil {
			return fmt.Errorf("write %q: %w", o.name, err)
		}
	}
	return nil
}

// emitFiles copies those files of a layer's tar stream that are still shown,
// under the names that they have in the end.
func emitFiles(tw *tar.Writer, r io.Reader, files map[int][]string) error {
	tr := tar.NewReader(r)
	left := len(files)
	for ordinal := 0; left > 0; ordinal++ {
		hdr, err := tr.Next()
		if err != nil {
			return fmt.Errorf("entry %d: %w", ordinal, err)
		}
		names := files[ordinal]
		if len(names) == 0 {
			continue
		}
		left--
		e, err := newEntry(hdr)
		if err != nil {
			return err
		}
		if err := emitFile(tw, tr, e, names); err != nil {
			return fmt.Errorf("%q: %w", names[0], err)
		}
	}
	return nil
}

func emitFile(tw *tar.Writer, content io.Reader, e entry, names []string) error {
	if err := tw.WriteHeader(e.header(names[0])); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if _, err := io.Copy(tw, content); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	for _, name := range names[1:] {
		if err := tw.WriteHeader(hardLink(name, names[0])); err != nil {
			return fmt.Errorf("write link %q: %w", name, err)
		}
	}
	return nil
}

// header is the tar header that gives name what e says.
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
	if e.capability != "" {
		hdr.PAXRecords = map[string]string{paxCapability: e.capability}
	}
	return hdr
}

func hardLink(name, target string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}
}
