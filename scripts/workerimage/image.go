package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The paths of the programs in the image.
const (
	programPath = "usr/bin/cl-worker"
	managerPath = "usr/bin/cl-worker-manager"
)

// made is an image for several platforms.
type made struct {
	index   v1.ImageIndex
	version string
	time    time.Time
	// packages are the lines "name version" of each architecture's packages.
	packages map[string][]string
}

// image builds the image.
func (b *build) image(ctx context.Context) (*made, error) {
	m := &made{packages: map[string][]string{}}
	var all []mutate.IndexAddendum
	var about map[string]string
	for _, architecture := range b.architectures {
		p, err := b.compile(ctx, architecture)
		if err != nil {
			return nil, err
		}
		m.version, m.time, about = p.version, p.time, p.labels()
		packages, err := b.debian.fetch(ctx, architecture, filepath.Join(b.dir, architecture))
		if err != nil {
			return nil, fmt.Errorf("get Debian's packages: %w", err)
		}
		for _, p := range packages {
			m.packages[architecture] = append(m.packages[architecture], p.name+" "+p.version)
		}
		img, err := p.image(ctx, architecture, packages)
		if err != nil {
			return nil, fmt.Errorf("make the image for %s: %w", architecture, err)
		}
		all = append(all, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), all...)
	annotated, ok := mutate.Annotations(index, about).(v1.ImageIndex)
	if !ok {
		return nil, errors.New("the annotated index is none")
	}
	m.index = annotated
	return m, nil
}

// program is a compiled cl-worker, and the cl-worker-manager for a manager in a cluster of Kubernetes.
type program struct {
	content, manager  []byte
	licence           []byte
	version, revision string
	time              time.Time
}

// compile builds the programs for an architecture, as a release does.
func (b *build) compile(ctx context.Context, architecture string) (program, error) {
	dir := filepath.Join(b.dir, "bin-"+architecture) + "/"
	out := dir + filepath.Base(programPath)
	linker := "-s -w -buildid="
	if b.version != "" {
		linker += " -X github.com/cl-slurm/cl-slurm/cmd/internal/program.release=" + b.version
	}
	env := append(os.Environ(), "GOOS=linux", "GOARCH="+architecture, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off", "GOFIPS140=off")
	if _, err := output(ctx, b.source, env, "go", "build", "-trimpath", "-buildvcs=auto", "-ldflags", linker, "-o", dir, "./cmd/cl-worker", "./cmd/cl-worker-manager"); err != nil {
		return program{}, err
	}
	info, err := buildinfo.ReadFile(out)
	if err != nil {
		return program{}, err
	}
	p := program{version: cmp.Or(b.version, info.Main.Version, "(devel)"), time: b.time}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			p.revision = s.Value
		case "vcs.time":
			at, err := time.Parse(time.RFC3339, s.Value)
			if err == nil && p.time.IsZero() {
				p.time = at.UTC()
			}
		}
	}
	if p.time.IsZero() {
		return program{}, errors.New("the sources are in no git repository: set SOURCE_DATE_EPOCH, the time of the image's files in seconds")
	}
	if p.content, err = os.ReadFile(out); err != nil {
		return program{}, err
	}
	if p.manager, err = os.ReadFile(dir + filepath.Base(managerPath)); err != nil {
		return program{}, err
	}
	p.licence, err = os.ReadFile(filepath.Join(b.source, "LICENSE"))
	return p, err
}

// labels returns the labels of the image (OCI image-spec, annotations.md).
func (p program) labels() map[string]string {
	about := map[string]string{
		"org.opencontainers.image.title":       "cl-worker",
		"org.opencontainers.image.description": "CodaLab's worker, with the programs that run containers without root",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     p.version,
		"org.opencontainers.image.created":     p.time.Format(time.RFC3339),
	}
	if p.revision != "" {
		about["org.opencontainers.image.revision"] = p.revision
	}
	return about
}

// image makes the image for one architecture. The packages are a layer of their own: they change less often.
func (p program) image(ctx context.Context, architecture string, packages []pkg) (v1.Image, error) {
	system, err := base(ctx, architecture, packages)
	if err != nil {
		return nil, err
	}
	own := tree{
		programPath:                         {kind: tar.TypeReg, mode: 0o755, content: p.content},
		"usr/share/doc/cl-worker/copyright": {kind: tar.TypeReg, mode: 0o644, content: p.licence},
	}
	manager := tree{managerPath: {kind: tar.TypeReg, mode: 0o755, content: p.manager}}
	var layers []mutate.Addendum
	for _, one := range []struct {
		tree tree
		by   string
	}{{system, "packages of Debian"}, {manager, "cl-worker-manager " + p.version}, {own, "cl-worker " + p.version}} {
		layer, err := one.tree.layer(p.time)
		if err != nil {
			return nil, err
		}
		layers = append(layers, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: p.time}, CreatedBy: one.by}})
	}
	img, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layers...)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = architecture, "linux", v1.Time{Time: p.time}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + programPath},
		User:       fmt.Sprintf("%d:%d", userID, userID),
		WorkingDir: home,
		// NVIDIA's hook shows a container of a GPU the driver's libraries and nvidia-smi.
		Env:    []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "NVIDIA_DRIVER_CAPABILITIES=compute,utility"},
		Labels: p.labels(),
	}
	return mutate.ConfigFile(img, config)
}

// layer makes a layer of the tree.
func (t tree) layer(at time.Time) (v1.Layer, error) {
	var stream bytes.Buffer
	if err := t.write(&stream, at); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(stream.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(9), tarball.WithCompressedCaching)
}

// tag returns the version as the tag by which cl-worker-manager of the same version finds the image
// (cmd/internal/program: ImageTag).
func (m *made) tag() string {
	return strings.Trim(strings.NewReplacer("+", "-", "(", "-", ")", "-").Replace(m.version), "-")
}

// write writes the image into an OCI archive. containerd and podman take its name from the annotations.
func (m *made) write(to string) error {
	dir, err := os.MkdirTemp(filepath.Dir(to), ".cl-worker-image-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover has no meaning
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	names := map[string]string{"org.opencontainers.image.ref.name": m.tag(), "io.containerd.image.name": "localhost/cl-worker:" + m.tag()}
	if err := at.AppendIndex(m.index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	archive := tree{}
	err = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		archive[relative] = file{kind: tar.TypeReg, mode: 0o644, content: content}
		return err
	})
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(archive.write(out, m.time), out.Close())
}

// push pushes the image under a name, with the logins of docker and podman.
func (m *made) push(ctx context.Context, reference string) error {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return err
	}
	return remote.WriteIndex(ref, m.index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
}

// report prints the image's digest, sizes and places.
func (m *made) report(w io.Writer, file, pushed string) error {
	digest, err := m.index.Digest()
	if err != nil {
		return err
	}
	manifest, err := m.index.IndexManifest()
	if err != nil {
		return err
	}
	for _, one := range manifest.Manifests {
		img, err := m.index.Image(one.Digest)
		if err != nil {
			return err
		}
		layers, err := img.Layers()
		if err != nil {
			return err
		}
		var size int64
		for _, l := range layers {
			n, err := l.Size()
			if err != nil {
				return err
			}
			size += n
		}
		if _, err := fmt.Fprintf(w, "linux/%s: %.1f MB in %d layers, %d packages of Debian\n", one.Platform.Architecture, float64(size)/1e6, len(layers), len(m.packages[one.Platform.Architecture])); err != nil {
			return err
		}
	}
	places := slices.DeleteFunc([]string{file, pushed}, func(s string) bool { return s == "" })
	_, err = fmt.Fprintf(w, "cl-worker %s: %s %s\n", m.version, digest, strings.Join(places, ", "))
	return err
}
