package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/command"
)

// tree has the files of a layer, by their paths without a slash in front.
type tree map[string]file

// file is a file of a layer.
type file struct {
	kind     byte // tar's
	mode     int64
	target   string // of a link
	uid, gid int
	content  []byte
}

// add adds a file. It fails if another one has the path; directories may come several times.
func (t tree) add(name string, f file) error {
	old, known := t[name]
	if known && (old.kind != f.kind || f.kind != tar.TypeDir && !bytes.Equal(old.content, f.content)) {
		return fmt.Errorf("two packages have %s", name)
	}
	if !known {
		t[name] = f
	}
	return nil
}

// merged returns a path of a package below /usr, where the image has the directories /bin, /lib, /lib64 and /sbin.
func merged(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	switch first, _, _ := strings.Cut(name, "/"); first {
	case "bin", "sbin", "lib", "lib64":
		return "usr/" + name
	}
	return name
}

// wanted reports whether the image has a package's file: of some packages only the named ones, of the others the
// programs, the libraries and the licence.
func wanted(of, name string) bool {
	if name == "usr/share/doc/"+of+"/copyright" {
		return true
	}
	if some, ok := parts()[of]; ok {
		return slices.ContainsFunc(some, func(one string) bool {
			return name == one || strings.HasSuffix(one, "/") && strings.HasPrefix(name, one)
		})
	}
	for _, dir := range []string{"usr/bin/", "usr/sbin/", "usr/lib/", "usr/lib64/"} {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	return false
}

// unpack adds the wanted files of a package.
func (t tree) unpack(ctx context.Context, p pkg) error {
	reader, writer := io.Pipe()
	c := command.Command{Args: []string{"dpkg-deb", "--fsys-tarfile", p.file}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: writer}
	var failed error
	ended := background.Go(func() {
		failed = c.Run(ctx)
		_ = writer.CloseWithError(failed) // it never fails
	})
	err := t.read(p.name, tar.NewReader(reader))
	if err == nil {
		_, err = io.Copy(io.Discard, reader) // padding
	}
	_ = reader.CloseWithError(err) // it never fails
	<-ended
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("unpack %s: %w", p.name, err)
	}
	return t.add("var/lib/dpkg/status.d/"+p.name, file{kind: tar.TypeReg, mode: 0o644, content: p.control})
}

func (t tree) read(of string, r *tar.Reader) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := merged(h.Name)
		if !wanted(of, name) || h.Typeflag == tar.TypeDir {
			continue
		}
		f := file{kind: h.Typeflag, mode: h.Mode & 0o777, target: h.Linkname}
		switch h.Typeflag {
		case tar.TypeReg:
			if f.content, err = io.ReadAll(r); err != nil {
				return err
			}
		case tar.TypeSymlink:
		case tar.TypeLink:
			f.target = merged(h.Linkname)
		default:
			return fmt.Errorf("%s is neither a file nor a link", h.Name)
		}
		if err := t.add(name, f); err != nil {
			return err
		}
	}
}

// write writes the tree as a tar stream: sorted, with the directories above each file, and with one time.
func (t tree) write(w io.Writer, at time.Time) error {
	all := tree{}
	for name, f := range t {
		all[name] = f
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, known := t[dir]; !known {
				all[dir] = file{kind: tar.TypeDir, mode: 0o755}
			}
		}
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	out := tar.NewWriter(w)
	for _, name := range names {
		f := all[name]
		h := &tar.Header{
			Typeflag: f.kind, Name: name, Linkname: f.target, Mode: f.mode, Uid: f.uid, Gid: f.gid, Size: int64(len(f.content)), ModTime: at,
		}
		if f.kind == tar.TypeDir {
			h.Name += "/"
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := out.Write(f.content); err != nil {
			return err
		}
	}
	return out.Close()
}
