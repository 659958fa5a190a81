package tarstream_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// fuzzLimits are small: Unpack must refuse what exceeds them.
func fuzzLimits() tarstream.Limits { return tarstream.Limits{Bytes: 1 << 16, Entries: 64} }

// seeds are the small archives of the other tests, and a good one.
func seeds(f *testing.F) [][]byte {
	f.Helper()
	const most = 1 << 16
	var out [][]byte
	for _, test := range hostile() {
		if data := bytes.Join(test.entries, nil); len(data) <= most {
			out = append(out, data)
		}
	}
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "./d/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "./d/" + strings.Repeat("ä", 100), Mode: 0o644},
		{Typeflag: tar.TypeLink, Name: "./h", Linkname: "./d/" + strings.Repeat("ä", 100)},
		{Typeflag: tar.TypeSymlink, Name: "./l", Linkname: "../.."},
	} {
		must(f, tw.WriteHeader(&h))
	}
	must(f, tw.Close())
	return append(out, b.Bytes())
}

// unpackFuzzed unpacks a fuzzer's archive, and checks the promises for all archives, and that
// the memory is explained by the input and the largest headers.
func unpackFuzzed(t *testing.T, data []byte) {
	t.Helper()
	s := newSite(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_ = s.unpack(t, data, fuzzLimits()) // a refusal is no failure
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20+100*uint64(len(data)) {
		t.Errorf("%d bytes of memory for an archive of %d", took, len(data))
	}
}

func FuzzUnpack(f *testing.F) {
	for _, data := range seeds(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		unpackFuzzed(t, data)
		unpackFuzzed(t, repaired(data))
	})
}

// repaired gives the headers of an archive right checksums, as nothing behind a wrong one is
// read.
func repaired(data []byte) []byte {
	data = bytes.Clone(data)
	for at := 0; at+512 <= len(data); {
		block := data[at : at+512]
		checksum(block)
		size, err := strconv.ParseInt(strings.Trim(string(block[124:136]), " \x00"), 8, 64)
		if err != nil || size < 0 || size > int64(len(data)) {
			size = 0
		}
		at += 512 + int(size+511)&^511
	}
	return data
}

// The bytes that are decompressed cannot be trusted either.
func FuzzUnpackGzipped(f *testing.F) {
	for _, data := range seeds(f) {
		if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
			data = gzipped(data)
		}
		f.Add(data[2:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		unpackFuzzed(t, append([]byte{0x1f, 0x8b}, data...))
	})
}

// A tree of any names, contents and kinds is unpacked as it was packed.
func FuzzPackThenUnpack(f *testing.F) {
	f.Add("a\nd/b\nd/e/\nd/l>../a\nh=a\n\xff\xfe>\x01", []byte("some content"), uint16(0o750))
	f.Add(strings.Repeat("n", 255)+"\n"+strings.Repeat("d/", 100)+"f", []byte(nil), uint16(0))
	f.Add(". \n..a\n-\n*\n\\\n~", bytes.Repeat([]byte{0}, 1000), uint16(0o7777))
	f.Fuzz(func(t *testing.T, names string, content []byte, perm uint16) {
		from, to := t.TempDir(), newSite(t)
		plant(openRoot(t, from), names, content, os.FileMode(perm)&0o777)
		must(t, to.unpack(t, pack(t, from, tarstream.PackOptions{}), tarstream.Limits{}))
		if diff := cmp.Diff(tree(t, from), tree(t, to.root)); diff != "" {
			t.Errorf("(-packed +unpacked):\n%s", diff)
		}
		must(t, filepath.Walk(from, func(p string, was os.FileInfo, err error) error {
			if err != nil || p == from {
				return err
			}
			is, err := os.Lstat(filepath.Join(to.root, strings.TrimPrefix(p, from)))
			if err == nil && (is.Mode() != was.Mode() || !was.IsDir() && was.Mode().IsRegular() && is.ModTime().Unix() != was.ModTime().Unix()) {
				err = fmt.Errorf("%q is %v of %v, was %v of %v", p, is.Mode(), is.ModTime(), was.Mode(), was.ModTime())
			}
			return err
		}))
	})
}

// plant makes the entries that names describes, a line each: "file", "directory/", "link>to",
// "hardlink=to". It skips entries that cannot be made.
func plant(root *os.Root, names string, content []byte, perm os.FileMode) {
	for i, name := range strings.Split(names, "\n") {
		if i == 32 {
			return
		}
		if target, link, ok := cut(name, ">"); ok {
			_ = root.Symlink(link, target)
			continue
		}
		if target, link, ok := cut(name, "="); ok {
			_ = root.Link(link, target)
			continue
		}
		_ = root.MkdirAll(filepath.Dir(name), 0o755)
		if strings.HasSuffix(name, "/") {
			_ = root.Mkdir(strings.TrimRight(name, "/"), perm|0o700)
			continue
		}
		if f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY, perm|0o400); err == nil {
			_, _ = f.Write(content[:min(len(content), len(content)*(i+1)/4)])
			_ = f.Close()
		}
	}
}

func cut(s, sep string) (string, string, bool) {
	before, after, ok := strings.Cut(s, sep)
	return before, after, ok && before != "" && after != ""
}
