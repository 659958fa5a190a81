package apptainer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// pushedLayer is a blob of exactly these bytes as a layer that is said to
// unpack to some content.
type pushedLayer struct {
	v1.Layer

	content []byte
}

func (l pushedLayer) DiffID() (v1.Hash, error) {
	hash, _, err := v1.SHA256(bytes.NewReader(l.content))
	return hash, err
}

// blobImage is a tiny image with one more layer of exactly these bytes, under
// the digest that they have.
func blobImage(t *testing.T, blob []byte, kind types.MediaType, content []byte) v1.Image {
	t.Helper()
	img, err := mutate.Append(tiny(t, "base"), mutate.Addendum{Layer: pushedLayer{static.NewLayer(blob, kind), content}})
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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

// The registry's digest is right; what it stands for is not.
func TestLayersThatWerePushedDamagedAreRefused(t *testing.T) {
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
			img := resolve(t, imagetest.Start(t).Push(t, "x", blobImage(t, layer.blob, layer.kind, stream)))
			failedConversion(t, apptainer.Converter{Registry: quick()}, img, false, "layer 2 of 2: ")
		})
	}
}

// What a layer unpacks to is bounded, whatever makes it large.
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
				img := resolve(t, imagetest.Start(t).Push(t, "x", blobImage(t, compress(t, stream...), kind, stream[0])))
				failedConversion(t, apptainer.Converter{Registry: quick(), MaxBytes: 8 << 20, MaxEntries: 3000}, img, false, "more than is allowed")
			})
		}
	}
}

// sparseBomb is a file of 8 TiB of which a byte is written.
func sparseBomb(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "huge"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(8 << 40); err != nil {
		_ = f.Close()
		t.Skipf("needs a file system with files of 8 TiB: %v", err)
	}
	if _, err = f.WriteAt([]byte("x"), 0); err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	stream, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "--sparse", "--format=pax", "-cf", "-", "huge").Output()
	if err != nil {
		t.Fatal(err)
	}
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

// A layer whose names and links lead out of the root writes inside it, and
// nothing on the host.
func TestLayerCannotWriteOutsideItsRoot(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	host := t.TempDir()
	victim := filepath.Join(host, "victim")
	if err := os.WriteFile(victim, []byte("the host's"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 30)
	img := imageOf(t,
		imagetest.TarStream(t, imagetest.Symlink("abs", host), imagetest.Symlink("up", up+host[1:]), imagetest.Symlink("file", victim), imagetest.Symlink("hop", "up")),
		imagetest.TarStream(t,
			imagetest.Regular("abs/victim", "by a link"), imagetest.Regular("up/second", "by a link that goes up"), imagetest.Regular("hop/third", "by two links"),
			imagetest.Regular(up+host[1:]+"/fourth", "by dots"), imagetest.Regular("/"+host+"/fifth", "by a slash"), imagetest.Regular("file", "over a link"),
			imagetest.Hardlink("hard", up+victim[1:]), imagetest.Regular("abs/.wh.none", "")))
	dir := t.TempDir()
	sif := filepath.Join(dir, "x.sif")
	if err := (apptainer.Converter{Registry: quick()}).Convert(t.Context(), resolve(t, imagetest.Start(t).Push(t, "x", img)), sif, nil); err != nil {
		t.Fatal(err)
	}
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

// Docker makes images of up to 127 layers.
func TestImageOfManyLayersIsConverted(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	const n = 127
	streams := make([][]byte, n)
	for i := range streams {
		files := []imagetest.File{imagetest.Regular(fmt.Sprintf("d/f%d", i), strconv.Itoa(i)), imagetest.Regular("d/same", strconv.Itoa(i))}
		if i%2 == 1 {
			files = append(files, imagetest.Regular(fmt.Sprintf("d/.wh.f%d", i-1), ""), imagetest.Hardlink(fmt.Sprintf("d/l%d", i), "d/same"))
		}
		streams[i] = imagetest.TarStream(t, files...)
	}
	sif := filepath.Join(t.TempDir(), "x.sif")
	if err := (apptainer.Converter{Registry: quick()}).Convert(t.Context(), resolve(t, imagetest.Start(t).Push(t, "x", imageOf(t, streams...))), sif, nil); err != nil {
		t.Fatal(err)
	}
	list := unsquash(t, sif, "-l", sif, "d")
	for i := range n {
		there := strings.Contains(list, fmt.Sprintf("/d/f%d\n", i))
		if want := i%2 == 1 || i == n-1; there != want {
			t.Errorf("f%d is there: %v", i, there)
		}
	}
	if got := unsquash(t, sif, "-cat", sif, "d/same") + " " + unsquash(t, sif, "-cat", sif, "d/l125"); got != "126 125" {
		t.Errorf("the files read %q", got)
	}
}

// An image may hold one program, or nothing: whether it can run a command shows
// when it is run.
func TestImageWithoutShellOrLibrariesIsConverted(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	for name, streams := range map[string][][]byte{
		"one program":      {imagetest.TarStream(t, imagetest.Executable("hello", "\x7fELF"))},
		"nothing in it":    {imagetest.TarStream(t)},
		"no layers at all": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sif := filepath.Join(t.TempDir(), "x.sif")
			if err := (apptainer.Converter{Registry: quick()}).Convert(t.Context(), resolve(t, imagetest.Start(t).Push(t, "x", imageOf(t, streams...))), sif, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := sifconfig.Read(sif); err != nil {
				t.Error(err)
			}
		})
	}
}

// A Windows image has layers that registries do not give away; that it is one
// is what people have to hear.
func TestWindowsImageIsSaidToBeOne(t *testing.T) {
	t.Parallel()
	stream := imagetest.TarStream(t, imagetest.Directory("Files"), imagetest.Directory("Hives"))
	img := blobImage(t, gzipped(t, stream), types.DockerForeignLayer, stream)
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.OSVersion = "windows", "10.0.20348.2227"
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	reg := imagetest.Start(t)
	failedConversion(t, apptainer.Converter{Registry: quick()}, resolve(t, reg.Push(t, "x", img)), false, "it is made for windows, and only Linux images can be run")
	ref, err := apptainer.ParseReference(reg.PushIndex(t, "list", map[string]v1.Image{"windows/" + runtime.GOARCH: img}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = quick().Resolve(t.Context(), ref)
	wantImageError(t, err, false, "it is not made for linux/"+runtime.GOARCH+", only for windows/"+runtime.GOARCH)
}

func TestListWithoutAnyPlatformIsRefusedInWords(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	for name, platforms := range map[string]map[string]v1.Image{"empty": nil, "attestation": {"unknown/unknown": tiny(t, "x")}} {
		ref, err := apptainer.ParseReference(reg.PushIndex(t, name, platforms))
		if err != nil {
			t.Fatal(err)
		}
		_, err = quick().Resolve(t.Context(), ref)
		wantImageError(t, err, false, "it is not made for linux/"+runtime.GOARCH)
		if strings.HasSuffix(err.Error(), "for ") {
			t.Errorf("%q ends in the middle", err)
		}
	}
}

// What a registry says of an image has to fit together.
func TestManifestsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(t *testing.T, img v1.Image) v1.Image
		words  string
	}{
		"fewer layers than the configuration names": {func(t *testing.T, img v1.Image) v1.Image {
			t.Helper()
			return withConfig(t, img, func(c *v1.ConfigFile) { c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, c.RootFS.DiffIDs[0]) })
		}, "lists 1 layers, its configuration 2"},
		"no diffIDs": {func(t *testing.T, img v1.Image) v1.Image {
			t.Helper()
			return withConfig(t, img, func(c *v1.ConfigFile) { c.RootFS.DiffIDs = nil })
		}, "lists 1 layers, its configuration 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			img := tt.change(t, tiny(t, "x"))
			failedConversion(t, apptainer.Converter{Registry: quick()}, resolve(t, imagetest.Start(t).Push(t, "x", img)), false, tt.words)
		})
	}
}

func withConfig(t *testing.T, img v1.Image, change func(*v1.ConfigFile)) v1.Image {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	change(config)
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

// A registry, or who sits in front of it, may send without end.
func TestEndlessAnswersAreCutOff(t *testing.T) {
	t.Parallel()
	layer := imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", "content")))
	image := imagetest.Image(t, v1.Config{}, layer)
	config, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]string{"manifest": "/manifests/", "configuration": config.Hex, "layer": digest.Hex} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			pushed := reg.Push(t, "x", image)
			img := resolve(t, pushed)
			var sent atomic.Int64
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, at) {
					return false
				}
				w.Header().Set("Content-Type", string(types.DockerManifestSchema2))
				for block := make([]byte, 64<<10); r.Context().Err() == nil; {
					n, err := w.Write(block)
					sent.Add(int64(n))
					if err != nil {
						break
					}
				}
				return true
			}
			failedConversion(t, apptainer.Converter{Registry: quick()}, img, false, "")
			if sent.Load() > 256<<20 {
				t.Errorf("took %d bytes", sent.Load())
			}
		})
	}
}

// Who decides what a digest stands for is not the registry.
func TestAnswersOfAnotherDigestAreRefused(t *testing.T) {
	t.Parallel()
	other := tiny(t, "another image")
	manifest, err := other.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	reg := imagetest.Start(t)
	reg.Push(t, "x:other", other)
	img := resolve(t, reg.Push(t, "x", tiny(t, "x")))
	reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/manifests/sha256:") {
			return false
		}
		w.Header().Set("Content-Type", string(types.DockerManifestSchema2))
		_, _ = w.Write(manifest)
		return true
	}
	failedConversion(t, apptainer.Converter{Registry: quick()}, img, false, "its manifest is corrupt")
}

// Headers that no tar program writes.
func TestTarHeadersThatLieAreRefused(t *testing.T) {
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
			img := resolve(t, imagetest.Start(t).Push(t, "x", blobImage(t, gzipped(t, tt.stream), types.OCILayer, tt.stream)))
			dir := t.TempDir()
			err := apptainer.Converter{Registry: quick()}.Convert(t.Context(), img, filepath.Join(dir, "x.sif"), nil)
			first, second, _ := strings.Cut(tt.words, "|")
			if second != "" && err != nil && strings.Contains(err.Error(), second) {
				first = second
			}
			wantImageError(t, err, false, first)
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// sized is an entry whose header says this size, in octal.
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
