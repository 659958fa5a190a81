package initproc

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// archive makes a tar stream; a name is a file's content.
func archive(t *testing.T, entries ...tar.Header) *bytes.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, hdr := range entries {
		if hdr.Typeflag == tar.TypeReg {
			hdr.Size = int64(len(hdr.Name))
		}
		err := w.WriteHeader(&hdr)
		if err == nil && hdr.Typeflag == tar.TypeReg {
			_, err = w.Write([]byte(hdr.Name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(buf.Bytes())
}

// A SIF may come from anybody.
func TestHostileFilesOfOtherOwnersStayInside(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string][]tar.Header{
		"parent":                 {{Name: "../outside/new", Typeflag: tar.TypeReg}},
		"absolute":               {{Name: "/outside/new", Typeflag: tar.TypeReg}},
		"through a link":         {{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, {Name: "link/new", Typeflag: tar.TypeReg}},
		"directory over a link":  {{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, {Name: "link/", Typeflag: tar.TypeDir, Mode: 0o777}},
		"hard link":              {{Name: "stolen", Typeflag: tar.TypeLink, Linkname: "../outside/secret"}},
		"hard link and then it":  {{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "../outside/secret"}, {Name: "link", Typeflag: tar.TypeReg}},
		"FIFO":                   {{Name: "../outside/new", Typeflag: tar.TypeFifo}},
		"FIFO through a link":    {{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, {Name: "link/new", Typeflag: tar.TypeFifo}},
		"the directory's parent": {{Name: "..", Typeflag: tar.TypeDir, Mode: 0o777}},
	} {
		top := t.TempDir()
		outside, inside := filepath.Join(top, "outside"), filepath.Join(top, "inside")
		for _, dir := range []string{outside, inside} {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(inside)
		if err != nil {
			t.Fatal(err)
		}
		if err := extractOthers(root, archive(t, entries...)); err == nil {
			t.Errorf("%s: no error", name)
		}
		_ = root.Close()
		left, err := os.ReadDir(outside)
		info, statErr := os.Stat(outside)
		topInfo, topErr := os.Stat(top)
		if errors.Join(err, statErr, topErr) != nil || len(left) != 1 || info.Mode().Perm() != 0o700 || topInfo.Mode().Perm() == 0o777 {
			t.Errorf("%s: outside are %v, %v", name, left, info)
		}
		if text, err := os.ReadFile(filepath.Join(inside, "stolen")); err == nil || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: inside is %q, %v", name, text, err)
		}
	}
}

func TestFilesOfOtherOwnersKeepTheirModesAndTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	then := time.Unix(1_000_000_000, 0)
	err = extractOthers(root, archive(t,
		tar.Header{Name: "usr/bin/chage", Typeflag: tar.TypeReg, Mode: 0o2755, ModTime: then},
		tar.Header{Name: "usr/bin/age", Typeflag: tar.TypeLink, Linkname: "usr/bin/chage"},
		tar.Header{Name: "usr/pipe", Typeflag: tar.TypeFifo, Mode: 0o600},
		tar.Header{Name: "usr/link", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
		tar.Header{Name: "usr/null", Typeflag: tar.TypeChar, Mode: 0o666},
		tar.Header{Name: "usr/bin/", Typeflag: tar.TypeDir, Mode: 0o500, ModTime: then},
	))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range []string{"usr/bin/chage", "usr/bin/age", "usr/bin", "usr/pipe", "usr/link", "usr/null"} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			got = append(got, "none")
			continue
		}
		line := info.Mode().String()
		if info.Mode().IsRegular() || info.IsDir() {
			line += " " + info.ModTime().UTC().Format(time.DateOnly)
		}
		got = append(got, line)
	}
	if err := os.Chmod(filepath.Join(dir, "usr/bin"), 0o700); err != nil { // to be removed
		t.Fatal(err)
	}
	want := "grwxr-xr-x 2001-09-09; grwxr-xr-x 2001-09-09; dr-x------ 2001-09-09; prw-------; Lrwxrwxrwx; none"
	if diff := strings.Join(got, "; "); diff != want {
		t.Errorf("%q, want %q", diff, want)
	}
}
