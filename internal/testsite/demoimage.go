package testsite

import (
	"archive/tar"
	"bytes"
	"context"
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
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/madeonce"
)

// recipe holds all inputs of the demo's image except Debian's archive. An image is made
// once for each recipe, and kept, so that a site needs neither an account nor a public
// registry.
type recipe struct {
	Mmdebstrap []string
	// Epoch is the time of every file and of the image itself.
	Epoch  int64
	Config v1.Config
	Arch   string
	// Removed and Added are the changes of the second layer. A name that ends in a slash
	// is a directory.
	Removed []string
	Added   map[string]string
}

// newRecipe is the recipe of a small Debian with Python.
func newRecipe() recipe {
	return recipe{
		Mmdebstrap: []string{
			"mmdebstrap", "--quiet", "--variant=minbase", "--include=python3-minimal", "--format=tar",
			// An image has no device files, and the files that mmdebstrap copies from this
			// machine do not belong into it.
			"--skip=output/dev",
			`--customize-hook=rm "$1/etc/resolv.conf" "$1/etc/hostname"`,
			"bookworm", "-",
		},
		Epoch: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).Unix(),
		Config: v1.Config{
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEMO_IMAGE=1"},
			Cmd:        []string{"bash"},
			WorkingDir: "/",
		},
		Arch:    runtime.GOARCH,
		Removed: []string{"etc/issue.net"},
		Added: map[string]string{
			"dev/":           "", // left out of the first together with the device files
			"etc/demo-image": "A small Debian with Python, for the demo and for tests.\n",
		},
	}
}

// ensureImage returns the path of the recipe's OCI layout below dir, and makes it first if it is missing.
func (r recipe) ensureImage(ctx context.Context, dir string, log io.Writer) (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("name image: %w", err)
	}
	return madeonce.Path(dir, string(text), func(tmp string) (string, error) {
		_, _ = fmt.Fprintln(log, "making an image, a small Debian with Python (half a minute, once)")
		if err := r.build(ctx, tmp); err != nil {
			return "", fmt.Errorf("make image: %w", err)
		}
		return filepath.Join(tmp, "layout"), nil
	})
}

// build writes the image's OCI layout to dir/layout.
func (r recipe) build(ctx context.Context, dir string) error {
	debian := filepath.Join(dir, "debian.tar")
	if err := r.bootstrap(ctx, debian); err != nil {
		return err
	}
	base, err := tarball.LayerFromFile(debian, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return err
	}
	img, err := r.image(base)
	if err != nil {
		return err
	}
	index, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		return err
	}
	return index.AppendImage(img)
}

// bootstrap writes a Debian to a tar file.
func (r recipe) bootstrap(ctx context.Context, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return command.Command{
		Args:   r.Mmdebstrap,
		Env:    []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "LC_ALL=C.UTF-8", "SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.Epoch, 10)},
		Stdout: f,
	}.Run(ctx)
}

// change returns the second layer: it removes a file of the first and adds one.
func (r recipe) change() (v1.Layer, error) {
	files := map[string]string{}
	for _, name := range r.Removed {
		dir, base := filepath.Split(name)
		files[dir+".wh."+base] = ""
	}
	maps.Copy(files, r.Added)

	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name])), ModTime: time.Unix(r.Epoch, 0)}
		if strings.HasSuffix(name, "/") {
			header.Typeflag, header.Mode = tar.TypeDir, 0o755
		}
		headerErr := w.WriteHeader(header)
		_, err := io.WriteString(w, files[name])
		errs = append(errs, headerErr, err)
	}
	if err := errors.Join(append(errs, w.Close())...); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// image adds the second layer to a first one.
func (r recipe) image(base v1.Layer) (v1.Image, error) {
	change, err := r.change()
	if err != nil {
		return nil, fmt.Errorf("second layer: %w", err)
	}
	created := v1.Time{Time: time.Unix(r.Epoch, 0).UTC()}
	history := v1.History{Created: created, CreatedBy: "cl-slurm/internal/testsite"}
	img, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: base, History: history}, mutate.Addendum{Layer: change, History: history})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created, config.OS, config.Architecture, config.Config = created, "linux", r.Arch, r.Config
	return mutate.ConfigFile(img, config)
}
