package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/internal/command"
)

const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// recipe is everything that the image depends on besides Debian's archive. An image is
// made once for each recipe.
type recipe struct {
	Mmdebstrap []string
	// Epoch is the time of every file and of the image itself.
	Epoch  int64
	Config v1.Config
	Arch   string
	// Removed and Added are what the second layer does. A name that ends in a
	// slash is a directory.
	Removed []string
	Added   map[string]string
}

func newRecipe() recipe {
	return recipe{
		Mmdebstrap: []string{
			"mmdebstrap", "--quiet", "--variant=minbase", "--include=python3-minimal", "--format=tar",
			// An image brings no device files; and what mmdebstrap copies from
			// this machine belongs to this machine.
			"--skip=output/dev",
			`--customize-hook=rm "$1/etc/resolv.conf" "$1/etc/hostname"`,
			"bookworm", "-",
		},
		Epoch: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).Unix(),
		Config: v1.Config{
			Env:        []string{path, "DEMO_IMAGE=1"},
			Cmd:        []string{"bash"},
			WorkingDir: "/",
		},
		Arch:    runtime.GOARCH,
		Removed: []string{"etc/issue.net"},
		Added: map[string]string{
			"dev/":           "", // left out of the first together with the device files
			"etc/demo-image": "A small Debian with Python, made by scripts/demoimage.\n",
		},
	}
}

// name is the directory of the recipe's image.
func (r recipe) name() (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("name image: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))[:12], nil
}

// ensureImage returns the path of the demo image's OCI layout below dir, and makes it
// first if it is missing. One process makes it at a time, and it appears in one step.
func ensureImage(ctx context.Context, dir string, out io.Writer) (string, error) {
	r := newRecipe()
	name, err := r.name()
	if err != nil {
		return "", err
	}
	kept := filepath.Join(dir, name)
	if exists(kept) {
		return kept, nil
	}
	if err := r.makeOnce(ctx, dir, kept, out); err != nil {
		return "", fmt.Errorf("make image: %w", err)
	}
	return kept, nil
}

// makeOnce makes the image as kept, unless another process does so first.
func (r recipe) makeOnce(ctx context.Context, dir, kept string, out io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // an image is no secret
		return err
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if exists(kept) {
		return nil
	}
	tmp, err := os.MkdirTemp(dir, ".building-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if _, err := fmt.Fprintln(out, "demoimage: making a small Debian with Python (half a minute, once)"); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := r.build(ctx, tmp); err != nil {
		return err
	}
	return os.Rename(filepath.Join(tmp, "layout"), kept)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lock waits for a lock, which ends with this process at the latest.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// build writes the image's OCI layout to dir/layout.
func (r recipe) build(ctx context.Context, dir string) error {
	debian := filepath.Join(dir, "debian.tar")
	if err := r.bootstrap(ctx, debian); err != nil {
		return err
	}
	base, err := tarball.LayerFromFile(debian, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return fmt.Errorf("%s: %w", debian, err)
	}
	change, err := r.change()
	if err != nil {
		return err
	}
	img, err := r.image(base, change)
	if err != nil {
		return err
	}
	index, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	if err := index.AppendImage(img); err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	return nil
}

// bootstrap writes a Debian to a tar file.
func (r recipe) bootstrap(ctx context.Context, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return command.Command{
		Args:   r.Mmdebstrap,
		Env:    []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "LC_ALL=C.UTF-8", "SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.Epoch, 10)},
		Stdout: f,
	}.Run(ctx)
}

// change is the second layer: it removes a file of the first and adds one.
func (r recipe) change() (v1.Layer, error) {
	files := map[string]string{}
	for _, name := range r.Removed {
		dir, base := filepath.Split(name)
		files[dir+".wh."+base] = ""
	}
	maps.Copy(files, r.Added)

	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name])), ModTime: time.Unix(r.Epoch, 0)}
		if strings.HasSuffix(name, "/") {
			header.Typeflag, header.Mode = tar.TypeDir, 0o755
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("second layer: %w", err)
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			return nil, fmt.Errorf("second layer: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("second layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("second layer: %w", err)
	}
	return layer, nil
}

func (r recipe) image(layers ...v1.Layer) (v1.Image, error) {
	created := v1.Time{Time: time.Unix(r.Epoch, 0).UTC()}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, layer := range layers {
		var err error
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: created, CreatedBy: "scripts/demoimage"},
		})
		if err != nil {
			return nil, fmt.Errorf("assemble image: %w", err)
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("assemble image: %w", err)
	}
	config = config.DeepCopy()
	config.Created, config.OS, config.Architecture, config.Config = created, "linux", r.Arch, r.Config
	img, err = mutate.ConfigFile(img, config)
	if err != nil {
		return nil, fmt.Errorf("assemble image: %w", err)
	}
	return img, nil
}
