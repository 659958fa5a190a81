package apptainer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// pushedLayer is a layer whose blob need not unpack to the content of its diffID.
type pushedLayer struct {
	v1.Layer

	content []byte
}

func (l pushedLayer) DiffID() (v1.Hash, error) {
	hash, _, err := v1.SHA256(bytes.NewReader(l.content))
	return hash, err
}

// blobImage returns a tiny image with one more layer: exactly these bytes, with their digest.
func blobImage(t *testing.T, blob []byte, kind types.MediaType, content []byte) v1.Image {
	t.Helper()
	img, err := mutate.Append(imagetest.Tiny(t, "base"), mutate.Addendum{Layer: pushedLayer{static.NewLayer(blob, kind), content}})
	must(t, err)
	return img
}

// gzipped compresses streams one after the other.
func gzipped(t *testing.T, streams ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	return compressed(t, &b, gzip.NewWriter(&b), streams)
}

func zstandard(t *testing.T, streams ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
	must(t, err)
	return compressed(t, &b, w, streams)
}

func compressed(t *testing.T, b *bytes.Buffer, w io.WriteCloser, streams [][]byte) []byte {
	t.Helper()
	var err error
	for _, stream := range streams {
		if err == nil {
			_, err = w.Write(stream)
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The digests are right; the layers are damaged.
func TestLayersThatWereDamagedBeforeThePushAreRefused(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a line of text that compresses, but not to nothing\n", 5000) + strconv.Itoa(1<<40)
	stream := imagetest.TarStream(t, imagetest.Regular("a", text), imagetest.Regular("b", text[:1000]))
	flipped := func(b []byte, at int) []byte {
		b = bytes.Clone(b)
		b[at] ^= 0x55
		return b
	}
	for name, layer := range map[string]struct {
		blob []byte
		kind types.MediaType
	}{
		"gzip cut short in the middle":       {gzipped(t, stream)[:500], types.OCILayer},
		"gzip without its end":               {gzipped(t, stream)[:len(gzipped(t, stream))-4], types.OCILayer},
		"gzip changed in the middle":         {flipped(gzipped(t, stream), 300), types.OCILayer},
		"gzip with another sum":              {flipped(gzipped(t, stream), len(gzipped(t, stream))-6), types.OCILayer},
		"gzip of a tar that is cut short":    {gzipped(t, stream[:len(stream)/2]), types.OCILayer},
		"gzip of nothing like a tar":         {gzipped(t, []byte(text)), types.OCILayer},
		"gzip header and no more":            {gzipped(t, stream)[:10], types.OCILayer},
		"one byte":                           {[]byte{0x1f}, types.OCILayer},
		"zstd cut short in the middle":       {zstandard(t, stream)[:40], types.OCILayerZStd},
		"zstd without its end":               {zstandard(t, stream)[:len(zstandard(t, stream))-2], types.OCILayerZStd},
		"zstd changed in the middle":         {flipped(zstandard(t, stream), 60), types.OCILayerZStd},
		"zstd with another sum":              {flipped(zstandard(t, stream), len(zstandard(t, stream))-2), types.OCILayerZStd},
		"zstd of a tar that is cut short":    {zstandard(t, stream[:len(stream)/2]), types.OCILayerZStd},
		"uncompressed tar that is cut short": {stream[:len(stream)/2], types.OCIUncompressedLayer},
		"HTML":                               {[]byte("<html><body>Please log in to the hotel's network</body></html>"), types.OCILayer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			img := published(t, blobImage(t, layer.blob, layer.kind, stream))
			failedConversion(t, apptainer.Converter{Source: imagetest.Source()}, img, false, "layer 2 of 2: ")
		})
	}
}

// The unpacked size of a layer is limited, even if a tiny blob makes it large.
func TestBombsOfAllKindsAreRefused(t *testing.T) {
	t.Parallel()
	whole := imagetest.TarStream(t, imagetest.Regular("a", "content"))
	zeros := make([]byte, 64<<20)
	filled := imagetest.TarStream(t, imagetest.Regular("zeros", string(zeros)))
	deep := imagetest.TarStream(t, imagetest.Regular(strings.Repeat("d/", 2000)+"f", ""), imagetest.Regular(strings.Repeat("e/", 2000)+"f", ""))
	for name, stream := range map[string][][]byte{
		"zeros in a file": {filled}, "zeros after the end": {whole, zeros, zeros, zeros, zeros, zeros}, "a sparse file of 8 TiB": {sparseBomb(t)},
		"many names": {manyNames(t, 5000)}, "directories in directories": {deep},
	} {
		for kind, compress := range map[types.MediaType]func(*testing.T, ...[]byte) []byte{types.OCILayer: gzipped, types.OCILayerZStd: zstandard} {
			t.Run(name+" in "+string(kind), func(t *testing.T) {
				t.Parallel()
				img := published(t, blobImage(t, compress(t, stream...), kind, stream[0]))
				failedConversion(t, apptainer.Converter{Source: imagetest.Source(), MaxBytes: 8 << 20, MaxEntries: 3000}, img, false, "more than is allowed")
			})
		}
	}
}

// sparseBomb returns a sparse file of 8 TiB with one byte.
func sparseBomb(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "huge"))
	must(t, err)
	if err := f.Truncate(8 << 40); err != nil {
		_ = f.Close()
		t.Skipf("needs a file system with files of 8 TiB: %v", err)
	}
	if _, err = f.WriteAt([]byte("x"), 0); err == nil {
		err = f.Close()
	}
	must(t, err)
	stream, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "--sparse", "--format=pax", "-cf", "-", "huge").Output()
	must(t, err)
	return stream
}

func manyNames(t *testing.T, n int) []byte {
	t.Helper()
	files := make([]imagetest.File, n)
	for i := range files {
		files[i] = imagetest.Regular(fmt.Sprintf("f%d", i), "")
	}
	return imagetest.TarStream(t, files...)
}

// Names and links that lead out of the root stay inside it, and change nothing on the host.
func TestLayerCannotWriteOutsideItsRoot(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	host := t.TempDir()
	victim := filepath.Join(host, "victim")
	must(t, os.WriteFile(victim, []byte("the host's"), 0o600))
	up := strings.Repeat("../", 30)
	img := imageOf(t,
		imagetest.TarStream(t, imagetest.Symlink("abs", host), imagetest.Symlink("up", up+host[1:]), imagetest.Symlink("file", victim), imagetest.Symlink("hop", "up")),
		imagetest.TarStream(t,
			imagetest.Regular("abs/victim", "by a link"), imagetest.Regular("up/second", "by a link that goes up"), imagetest.Regular("hop/third", "by two links"),
			imagetest.Regular(up+host[1:]+"/fourth", "by dots"), imagetest.Regular("/"+host+"/fifth", "by a slash"), imagetest.Regular("file", "over a link"),
			imagetest.Hardlink("hard", up+victim[1:]), imagetest.Regular("abs/.wh.none", "")))
	sif := converted(t, apptainer.Converter{}, published(t, img))
	for name, want := range map[string]string{
		"victim": "by a link", "second": "by a link that goes up", "third": "by two links", "fourth": "by dots", "fifth": "by a slash",
	} {
		if got := unsquash(t, sif, "-cat", sif, host[1:]+"/"+name); got != want {
			t.Errorf("%s reads %q, want %q", name, got, want)
		}
	}
	if got := unsquash(t, sif, "-cat", sif, "hard"); got != "by a link" {
		t.Errorf("the hard link reads %q", got)
	}
	left, err := os.ReadDir(host)
	if content, readErr := os.ReadFile(victim); err != nil || readErr != nil || len(left) != 1 || string(content) != "the host's" {
		t.Errorf("on the host: %v %v, %q %v", left, err, content, readErr)
	}
}

// Headers that no tar program writes.
func TestWrongTarHeadersAreRefused(t *testing.T) {
	t.Parallel()
	header := func(change func(h *tar.Header)) []byte {
		t.Helper()
		return imagetest.TarStream(t, with(imagetest.Regular("a", ""), change))
	}
	for name, tt := range map[string]struct {
		stream []byte
		words  string
	}{
		"a name without end":      {header(func(h *tar.Header) { h.Name = strings.Repeat("n", 300) }), "longer than 255 bytes"},
		"a path without end":      {header(func(h *tar.Header) { h.Name = strings.Repeat("n/", 3000) + "n" }), "longer than 4095 bytes"},
		"a target without end":    {header(func(h *tar.Header) { h.Typeflag, h.Linkname = tar.TypeSymlink, strings.Repeat("n/", 3000) }), "longer than 4095 bytes"},
		"a size of more than all": {sized(t, "77777777777"), "unexpected EOF|cut short"},
		"a negative size":         {sized(t, "-0000000001"), "header"},
		"a sum that is wrong":     {flippedHeader(t), "header"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			img := published(t, blobImage(t, gzipped(t, tt.stream), types.OCILayer, tt.stream))
			dir := t.TempDir()
			err := apptainer.Converter{Source: imagetest.Source()}.Convert(t.Context(), img, filepath.Join(dir, "x.sif"), nil)
			first, second, _ := strings.Cut(tt.words, "|")
			if second != "" && err != nil && strings.Contains(err.Error(), second) {
				first = second
			}
			imagetest.WantError(t, err, false, first)
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// sized returns an entry with this size, in octal, in its header.
func sized(t *testing.T, size string) []byte {
	t.Helper()
	stream := imagetest.TarStream(t, imagetest.Regular("a", "content"))
	copy(stream[124:136], size+"\x00")
	copy(stream[148:156], "        ")
	sum := 0
	for _, b := range stream[:512] {
		sum += int(b)
	}
	copy(stream[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return stream
}

func flippedHeader(t *testing.T) []byte {
	t.Helper()
	stream := imagetest.TarStream(t, imagetest.Regular("a", "content"), imagetest.Regular("b", "content"))
	stream[1024+100]++
	return stream
}
