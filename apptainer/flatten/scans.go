package flatten

import (
	"archive/tar"
	"fmt"
	"strings"
)

// scannedStream is the tar stream for the program that writes the file system. It counts the names that this
// program reads to find the place of each entry, because a small layer can make that take days.
//
// mksquashfs has a list of names for each directory, the newest first. For each part of a path it reads the list to
// the part (squashfs-tools, tar.c: add_tarfile, and for the target of a hard link lookup_pathname).
type scannedStream struct {
	*tar.Writer

	root      listed
	dirs      map[string]*listed // without the root
	read      int64
	mostNames int64 // in one directory
}

// listed is a directory of the stream.
type listed struct {
	name   string
	parent *listed
	names  int64
	place  int64 // the number of older names in its parent
}

func newScannedStream(tw *tar.Writer, crowd int64) *scannedStream {
	return &scannedStream{Writer: tw, dirs: map[string]*listed{}, mostNames: crowd}
}

// WriteHeader counts the names for an entry, and writes it.
func (s *scannedStream) WriteHeader(hdr *tar.Header) error {
	name := strings.TrimSuffix(hdr.Name, "/")
	if hdr.Typeflag == tar.TypeDir {
		s.findDir(name)
	} else {
		dir := s.findDir(parent(name))
		s.read += dir.names
		dir.names++
	}
	if hdr.Typeflag == tar.TypeLink {
		s.read += s.findDir(parent(hdr.Linkname)).names
	}
	if s.read > s.mostNames*s.mostNames {
		return fmt.Errorf("%w: it would take hours to find the places of its names in such large directories, of which %s is one", ErrTooLarge, quoted("/"+s.largest()))
	}
	return s.Writer.WriteHeader(hdr)
}

// findDir finds a directory, or adds it, and counts the names that are read for each part of its path.
func (s *scannedStream) findDir(name string) *listed {
	if name == "" {
		return &s.root
	}
	d := s.dirs[name]
	if d == nil {
		above := s.findDir(parent(name))
		s.read += above.names
		d = &listed{name: name, parent: above, place: above.names}
		above.names++
		s.dirs[name] = d
		return d
	}
	for at := d; at.parent != nil; at = at.parent {
		s.read += at.parent.names - at.place
	}
	return d
}

// largest returns the directory with the most names, or the first of them.
func (s *scannedStream) largest() string {
	most := &s.root
	for _, d := range s.dirs {
		if d.names > most.names || d.names == most.names && d.name < most.name {
			most = d
		}
	}
	return most.name
}
