package flatten

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ownedStream makes a layer of entries that belong to others than root.
func ownedStream(t *testing.T, entries []tar.Header, size int) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, hdr := range entries {
		content := []byte(nil)
		if hdr.Typeflag == tar.TypeReg {
			content = bytes.Repeat([]byte("x"), size)
			hdr.Size = int64(size)
		}
		must(t, w.WriteHeader(&hdr))
		_, err := w.Write(content)
		must(t, err)
	}
	must(t, w.Close())
	return buf.Bytes()
}

// othersOf flattens layers, and lists the entries of others.
func othersOf(t *testing.T, layers ...[]byte) (names []string) {
	t.Helper()
	f, _ := flattenerOf(Limits{Entries: 10_000, Bytes: 64 << 20, NameBytes: 1 << 20, Crowd: 1 << 20}, layers...)
	err := f.Write(context.Background(), io.Discard)
	if errors.Is(err, ErrAgain) {
		err = f.Write(context.Background(), io.Discard)
	}
	must(t, err)
	stream, err := f.Others()
	must(t, err)
	for r := tar.NewReader(bytes.NewReader(stream)); stream != nil; {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		content, err := io.ReadAll(r)
		must(t, err)
		names = append(names, fmt.Sprintf("%s %o %d bytes", hdr.Name, hdr.Mode, len(content)))
	}
	return names
}

func TestFilesOfOtherOwnersAreListedWithTheirDirectories(t *testing.T) {
	t.Parallel()
	layer := ownedStream(t, []tar.Header{
		{Name: "usr/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "usr/bin/", Typeflag: tar.TypeDir, Mode: 0o711},
		{Name: "usr/bin/roots", Typeflag: tar.TypeReg, Mode: 0o755},
		{Name: "usr/bin/chage", Typeflag: tar.TypeReg, Mode: 0o2755, Gid: 42},
		{Name: "usr/bin/hidden", Typeflag: tar.TypeReg, Mode: 0o755, Gid: 42},
		{Name: "usr/bin/age", Typeflag: tar.TypeLink, Linkname: "usr/bin/chage"},
		{Name: "usr/lib/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "var/", Typeflag: tar.TypeDir, Mode: 0o700},
		{Name: "var/mail/", Typeflag: tar.TypeDir, Mode: 0o2775, Gid: 8},
		{Name: "var/link", Typeflag: tar.TypeSymlink, Linkname: "mail", Uid: 1, Mode: 0o777},
		{Name: "var/null", Typeflag: tar.TypeChar, Uid: 1, Mode: 0o666},
	}, 5)
	// Of two names of a file, the stream has the content under the first in the order of names, or under
	// the one that was written immediately.
	want := []string{
		"usr/bin/chage 2755 5 bytes", "usr/bin/age 644 0 bytes", "var/link 777 0 bytes",
		"usr/ 755 0 bytes", "usr/bin/ 711 0 bytes", "var/ 700 0 bytes", "var/mail/ 2775 0 bytes",
	}
	if diff := cmp.Diff(want, othersOf(t, layer, stream(t, "usr/bin/.wh.hidden="))); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestTooManyFilesOfOtherOwnersAreNotListed(t *testing.T) {
	t.Parallel()
	var many []tar.Header
	for i := range maxOthers + 1 {
		many = append(many, tar.Header{Name: fmt.Sprintf("f%d", i), Typeflag: tar.TypeReg, Uid: 1000})
	}
	large := []tar.Header{{Name: "f", Typeflag: tar.TypeReg, Uid: 1000}}
	for name, tt := range map[string]struct {
		layer []byte
		want  int
	}{
		"as many as may be":  {ownedStream(t, many[1:], 0), maxOthers},
		"one more":           {ownedStream(t, many, 0), 0},
		"as large as may be": {ownedStream(t, large, maxOthersBytes), 1},
		"one byte more":      {ownedStream(t, large, maxOthersBytes+1), 0},
		"none":               {stream(t, "d/", "d/a=1"), 0},
	} {
		if got := othersOf(t, tt.layer); len(got) != tt.want {
			t.Errorf("%s: %d entries, want %d", name, len(got), tt.want)
		}
	}
}
