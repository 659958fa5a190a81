package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	scratch "github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sync/errgroup"
)

// recipe says what an image is made of.
type recipe struct {
	name string
	// files are how many bytes each layer takes from this machine's programs,
	// libraries, texts and data, the lowest layer first.
	files []int64
	// programs are this machine's, with their libraries, in one layer and
	// nothing else.
	programs []string
	// weights are how many bytes of numbers as of a trained model each layer
	// has besides, which hardly compress.
	weights []int64
	// labels is how many files of one small size there are in a layer of their own,
	// as of a dataset's labels.
	labels int
	// replaced is how many of a hundred files of the lower layers the last one
	// replaces or hides, half and half, as the last lines of a Dockerfile do.
	replaced int
	// rounds is how often our own side runs, and others how often Apptainer's;
	// long says that Apptainer's default takes minutes.
	rounds, others int
	long           bool
	// barred says that the bars are for this image.
	barred bool
}

// recipes are the images that are measured. Of "replaced", as of the image that
// the bar of 1.6 was found with (its 344 MB of layers showed 239), much is
// hidden in the end; of "medium" hardly anything, so that all of it has to be
// compressed again.
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

// imagesVersion changes with the recipes: images are kept by it.
const imagesVersion = "3"

// makeImage makes the image as an OCI layout in dir, unless it is there.
func makeImage(ctx context.Context, r recipe, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	shares, err := share(ctx, r)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "making-")
	if err != nil {
		return fmt.Errorf("make an image: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // renamed, or of no use
	layers := make([]v1.Layer, len(shares))
	group, _ := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, contents := range shares {
		group.Go(func() error {
			path := filepath.Join(work, fmt.Sprintf("layer-%d.tar.gz", i))
			if err := contents.write(path); err != nil {
				return err
			}
			var err error
			layers[i], err = tarball.LayerFromFile(path)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	img, err := mutate.AppendLayers(scratch.Image, layers...)
	if err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Created = v1.Time{Time: time.Now()} // as every builder says
	config.Config = v1.Config{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}, Cmd: []string{"/usr/bin/env"}}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	made := filepath.Join(work, "layout")
	to, err := layout.Write(made, scratch.Index)
	if err == nil {
		err = to.AppendImage(img)
	}
	if err != nil {
		return fmt.Errorf("make an image: %w", err)
	}
	return os.Rename(made, dir)
}

// file is a file of this machine that goes into images.
type file struct {
	path string
	info fs.FileInfo
}

// listFiles lists what is below /usr, in an order that depends on the names
// alone and mixes all kinds of files.
func listFiles() ([]file, error) {
	const largest = 40 << 20
	type keyed struct {
		file
		key uint64
	}
	var all []keyed
	err := filepath.WalkDir("/usr", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) { // a package is just being installed
			return nil
		}
		if err != nil {
			return err
		}
		if link := info.Mode()&fs.ModeSymlink != 0; !link && !info.Mode().IsRegular() || info.Size() > largest {
			return nil
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(path))
		all = append(all, keyed{file{path, info}, h.Sum64()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list files for an image: %w", err)
	}
	slices.SortFunc(all, func(a, b keyed) int {
		if a.key < b.key {
			return -1
		}
		return 1
	})
	sources := make([]file, len(all))
	for i, s := range all {
		sources[i] = s.file
	}
	return sources, nil
}

// contents are those of one layer.
type contents struct {
	files   []file
	prefix  string // before the files' names
	hidden  []file // of lower layers
	weights int64
	labels  int
}

// share gives each layer what it is made of.
func share(ctx context.Context, r recipe) ([]contents, error) {
	if r.programs != nil {
		sources, err := programFiles(ctx, r.programs)
		return []contents{{files: sources}}, err
	}
	if r.labels > 0 {
		return []contents{{labels: r.labels}}, nil
	}
	sources, err := listFiles()
	return deal(r, sources), err
}

// deal gives each layer its share of the sources. Where they do not suffice
// they are used once more, under another directory.
func deal(r recipe, sources []file) []contents {
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
	lower := layers[:len(layers)-1]
	for _, l := range lower {
		for i, s := range l.files {
			switch place := i * r.replaced % 200; { // evenly, in turns
			case place < r.replaced:
				last.files = append(last.files, s)
			case place >= 100 && place < 100+r.replaced:
				last.hidden = append(last.hidden, s)
			}
		}
	}
	return layers
}

// write writes the layer as `docker push` would: gzip at its default level.
func (c contents) write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make a layer: %w", err)
	}
	buffered := bufio.NewWriterSize(f, 1<<20)
	zipped := gzip.NewWriter(buffered)
	w := layerTar{Writer: tar.NewWriter(zipped), made: map[string]bool{"/": true}}
	slices.SortFunc(c.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	for _, s := range c.files {
		if err == nil {
			err = w.file(c.prefix, s)
		}
	}
	for _, s := range c.hidden {
		if err == nil {
			err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.Join(filepath.Dir(s.path), ".wh."+filepath.Base(s.path))[1:], Mode: 0o600})
		}
	}
	if err == nil && c.weights > 0 {
		err = w.weights(c.weights)
	}
	for i := range c.labels {
		if err == nil {
			err = w.label(i)
		}
	}
	if err := errors.Join(err, w.Close(), zipped.Close(), buffered.Flush(), f.Close()); err != nil {
		return fmt.Errorf("make a layer: %w", err)
	}
	return nil
}

type layerTar struct {
	*tar.Writer
	made map[string]bool // directories
}

// dirs writes the directories above a file that are not there yet.
func (w layerTar) dirs(dir string) error {
	if w.made[dir] {
		return nil
	}
	if err := w.dirs(filepath.Dir(dir)); err != nil {
		return err
	}
	w.made[dir] = true
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755, ModTime: time.Unix(1_700_000_000, 0)})
}

func (w layerTar) file(prefix string, s file) error {
	link := ""
	content := io.NopCloser(strings.NewReader(""))
	var err error
	if s.info.Mode().IsRegular() {
		content, err = os.Open(s.path)
	} else {
		link, err = os.Readlink(s.path)
	}
	if err != nil {
		return err
	}
	defer content.Close() //nolint:errcheck // only read
	hdr, err := tar.FileInfoHeader(s.info, link)
	if err != nil {
		return err
	}
	hdr.Name = (prefix + s.path)[1:]
	if err := errors.Join(w.dirs(filepath.Dir("/"+hdr.Name)), w.WriteHeader(hdr)); err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}

// label writes a file of what an object detector is told of one picture.
func (w layerTar) label(i int) error {
	text := fmt.Sprintf("0 0.%05d 0.%05d\n", i, i)
	name := fmt.Sprintf("/data/labels/%02d/%06d.txt", i/1000, i)
	if err := errors.Join(w.dirs(filepath.Dir(name)),
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name[1:], Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(1_700_000_000, 0)})); err != nil {
		return err
	}
	_, err := io.WriteString(w, text)
	return err
}

// weights writes numbers of a normal distribution in single precision.
func (w layerTar) weights(size int64) error {
	if err := errors.Join(w.dirs("/opt/model"),
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "opt/model/weights", Mode: 0o644, Size: size})); err != nil {
		return err
	}
	_, err := io.CopyN(w, &normal{random: rand.New(rand.NewPCG(5, 6))}, size)
	return err
}
