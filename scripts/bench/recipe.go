package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	scratch "github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// recipe describes an image.
type recipe struct {
	name string
	// files has each layer's number of bytes from this machine's /usr, the lowest layer
	// first.
	files []int64
	// programs are this machine's, with their libraries, in one layer and nothing
	// else.
	programs []string
	// weights has each layer's number of bytes that hardly compress, like a trained
	// model.
	weights []int64
	// labels is the number of small files in a layer of their own, like a dataset's
	// labels.
	labels int
	// replaced is the percentage of the lower layers' files that the last layer replaces
	// or hides, half and half, as the last lines of a Dockerfile do.
	replaced int
	// rounds is the number of runs of our own side, others that of Apptainer's; long
	// means that Apptainer's default takes minutes.
	rounds, others int
	long           bool
	// barred means that the bars are for this image.
	barred bool
}

// recipes returns the measured images. The bar of 1.6 comes from an image like
// "replaced", whose upper layers hide much (239 of its 344 MB are visible). In "medium"
// hardly anything is hidden, so nearly all of it is compressed again.
func recipes() []recipe {
	return []recipe{
		{name: "small", files: []int64{5e6}, rounds: 15, others: 5},
		{name: "medium", files: []int64{200e6, 110e6, 34e6}, replaced: 2, rounds: 7, others: 3, barred: true},
		{name: "replaced", files: []int64{160e6, 90e6, 40e6}, replaced: 40, rounds: 7, others: 3, barred: true},
		{name: "labels", labels: 20_000, rounds: 5, others: 1},
		{
			name:  "large",
			files: []int64{300e6, 300e6, 300e6, 250e6, 0, 50e6}, weights: []int64{0, 0, 0, 0, 800e6, 0}, replaced: 2,
			rounds: 3, others: 1, long: true,
		},
	}
}

// imagesVersion names the directory of kept images. It changes with the recipes.
const imagesVersion = "3"

// layoutBlobs are the blobs of an OCI layout. The library's own handler would read a
// whole blob to get its size.
type layoutBlobs struct{ dir string }

func (l layoutBlobs) path(h v1.Hash) string { return filepath.Join(l.dir, "blobs", h.Algorithm, h.Hex) }

// Stat returns a blob's size.
func (l layoutBlobs) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	info, err := os.Stat(l.path(h))
	if err != nil {
		return 0, registry.ErrNotFound
	}
	return info.Size(), nil
}

// Get opens a blob.
func (l layoutBlobs) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	return os.Open(l.path(h))
}

// makeImage returns the image in the OCI layout dir; the first call makes it.
func makeImage(ctx context.Context, r recipe, dir string) v1.Image {
	if _, err := os.Stat(dir); err != nil {
		work := must(os.MkdirTemp(filepath.Dir(dir), "making-"))
		defer func() { _ = os.RemoveAll(work) }() // a leftover has no meaning
		made := filepath.Join(work, "layout")
		check(must(layout.Write(made, scratch.Index)).AppendImage(r.image(ctx, work)))
		check(os.Rename(made, dir))
	}
	return must(testsite.OpenImage(dir))
}

// image makes the image, with its layers in dir.
func (r recipe) image(ctx context.Context, dir string) v1.Image {
	shares := r.contents(ctx)
	layers := make([]v1.Layer, len(shares))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, contents := range shares {
		group.Go(func() (err error) {
			path := filepath.Join(dir, fmt.Sprintf("layer-%d.tar.gz", i))
			if err := contents.write(path); err != nil {
				return fmt.Errorf("make a layer: %w", err)
			}
			layers[i], err = tarball.LayerFromFile(path)
			return err
		})
	}
	check(group.Wait())
	img := must(mutate.AppendLayers(scratch.Image, layers...))
	config := must(img.ConfigFile()).DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Created = v1.Time{Time: time.Now()} // every builder sets it
	config.Config = v1.Config{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}, Cmd: []string{"/usr/bin/env"}}
	return must(mutate.ConfigFile(img, config))
}

// file is a file of this machine.
type file struct {
	path string
	info fs.FileInfo
}

// listFiles lists the files below /usr in an order that depends only on their names and
// mixes all kinds of files.
func listFiles() []file {
	const largest = 40 << 20
	var all []file
	keys := map[string]uint64{}
	check(filepath.WalkDir("/usr", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) { // apt is at work
			return nil
		}
		if err != nil {
			return err
		}
		if link := info.Mode()&fs.ModeSymlink != 0; (link || info.Mode().IsRegular()) && info.Size() <= largest {
			h := fnv.New64a()
			_, _ = h.Write([]byte(path)) // a hash has no errors
			keys[path] = h.Sum64()
			all = append(all, file{path, info})
		}
		return nil
	}))
	slices.SortFunc(all, func(a, b file) int {
		if keys[a.path] < keys[b.path] {
			return -1
		}
		return 1
	})
	return all
}

// programFiles are programs of this machine with the libraries that their linker
// names.
func programFiles(ctx context.Context, programs []string) []file {
	paths := slices.Clone(programs)
	for word := range strings.FieldsSeq(program(ctx, append([]string{"ldd"}, programs...)...)) {
		if strings.HasPrefix(word, "/") && !strings.HasSuffix(word, ":") {
			paths = append(paths, word)
		}
	}
	slices.Sort(paths)
	var files []file
	for _, path := range slices.Compact(paths) {
		files = append(files, file{path, must(os.Stat(path))})
	}
	return files
}

// contents are those of one layer.
type contents struct {
	files   []file
	prefix  string // before the files' names
	hidden  []file // of lower layers
	weights int64
	labels  int
}

// contents divides the files among the layers. If the machine has too few files, it uses
// them again under another directory.
func (r recipe) contents(ctx context.Context) []contents {
	switch {
	case r.programs != nil:
		return []contents{{files: programFiles(ctx, r.programs)}}
	case r.labels > 0:
		return []contents{{labels: r.labels}}
	}
	sources := listFiles()
	layers := make([]contents, len(r.files))
	next, round := 0, 0
	for i, room := range r.files {
		l := &layers[i]
		if i < len(r.weights) {
			l.weights = r.weights[i]
		}
		for ; room > 0; next++ {
			if next == len(sources) {
				next, round = 0, round+1
			}
			if round > 0 {
				l.prefix = fmt.Sprintf("/opt/again%d", round)
			}
			l.files = append(l.files, sources[next])
			room -= sources[next].info.Size()
		}
	}
	last := &layers[len(layers)-1]
	for _, l := range layers[:len(layers)-1] {
		for i, f := range l.files {
			switch turn := i * r.replaced % 200; { // spread evenly
			case turn < r.replaced:
				last.files = append(last.files, f)
			case turn >= 100 && turn < 100+r.replaced:
				last.hidden = append(last.hidden, f)
			}
		}
	}
	return layers
}

// write writes the layer as docker push would: gzip at its default level.
func (c contents) write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(f, 1<<20)
	zipped := gzip.NewWriter(buffered)
	w := layerWriter{Writer: tar.NewWriter(zipped), made: map[string]bool{"/": true}}
	err = attempt(func() { c.writeTo(w) })
	return errors.Join(err, w.Close(), zipped.Close(), buffered.Flush(), f.Close())
}

func (c contents) writeTo(w layerWriter) {
	slices.SortFunc(c.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	for _, f := range c.files {
		w.file(c.prefix, f)
	}
	for _, f := range c.hidden {
		whiteout := filepath.Join(filepath.Dir(f.path), ".wh."+filepath.Base(f.path))
		check(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: whiteout[1:], Mode: 0o600}))
	}
	if c.weights > 0 { // numbers of a normal distribution in single precision
		random := rand.New(rand.NewPCG(5, 6))
		w.write("/opt/model/weights", c.weights, readerFunc(func(p []byte) (int, error) {
			n := len(p) / 4 * 4
			for at := 0; at < n; at += 4 {
				binary.LittleEndian.PutUint32(p[at:], math.Float32bits(float32(random.NormFloat64()*0.02)))
			}
			return n, nil
		}))
	}
	for i := range c.labels { // the labels of one picture for an object detector
		text := fmt.Appendf(nil, "0 0.%05d 0.%05d\n", i, i)
		w.write(fmt.Sprintf("/data/labels/%02d/%06d.txt", i/1000, i), int64(len(text)), bytes.NewReader(text))
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type layerWriter struct {
	*tar.Writer
	made map[string]bool // directories
}

// dirs writes a directory, and those above it, unless they are there.
func (w layerWriter) dirs(dir string) {
	if !w.made[dir] {
		w.dirs(filepath.Dir(dir))
		w.made[dir] = true
		check(w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755, ModTime: time.Unix(1_700_000_000, 0)}))
	}
}

// write writes a file of this size.
func (w layerWriter) write(name string, size int64, content io.Reader) {
	w.dirs(filepath.Dir(name))
	check(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name[1:], Mode: 0o644, Size: size, ModTime: time.Unix(1_700_000_000, 0)}))
	must(io.CopyN(w, content, size))
}

// file copies a file or a symbolic link of this machine.
func (w layerWriter) file(prefix string, f file) {
	link := ""
	content := io.NopCloser(bytes.NewReader(nil))
	if f.info.Mode().IsRegular() {
		content = must(os.Open(f.path))
	} else {
		link = must(os.Readlink(f.path))
	}
	defer func() { _ = content.Close() }() // only read
	header := must(tar.FileInfoHeader(f.info, link))
	header.Name = (prefix + f.path)[1:]
	w.dirs(filepath.Dir(prefix + f.path))
	check(w.WriteHeader(header))
	must(io.Copy(w, content))
}
