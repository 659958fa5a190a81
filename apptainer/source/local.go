package source

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// localStore reads an image from local files. Each of its blobs is a file.
type localStore struct {
	files      files
	want       string                                                     // the digest in the reference; empty for none
	top        func(ctx context.Context) (manifest, error)                // the manifest of the reference
	blobName   func(digest v1.Hash) (name string, ok bool)                // the file of a blob
	manifestOf func(ctx context.Context, digest string) (manifest, error) // the manifest of a digest
}

func (s *localStore) close() { s.files.close() }

func (s *localStore) manifest(ctx context.Context, digest string) (manifest, error) {
	if digest = cmp.Or(digest, s.want); digest == "" {
		return s.top(ctx)
	}
	return s.manifestOf(ctx, digest)
}

func (s *localStore) current(ctx context.Context) (digest string, private bool, err error) {
	m, err := s.manifest(ctx, "")
	return m.digest.String(), false, err
}

func (s *localStore) blob(ctx context.Context, blob v1.Descriptor, offset int64) (io.ReadCloser, error) {
	name, ok := s.blobName(blob.Digest)
	if !ok {
		return nil, fmt.Errorf("it has no blob %s", blob.Digest)
	}
	f, err := s.files.open(ctx, name, offset)
	if err != nil {
		return nil, err
	}
	if f.size != blob.Size {
		return nil, errors.Join(fmt.Errorf("%s is of %d bytes, not %d as its manifest says", name, f.size, blob.Size), f.Close())
	}
	return f, nil
}

// newLayout returns the store of an OCI layout (image-spec image-layout.md). Its index.json lists
// the images; annotations name them.
func newLayout(files files, ref Reference) *localStore {
	blobName := func(digest v1.Hash) (string, bool) {
		return path.Join("blobs", digest.Algorithm, digest.Hex), true
	}
	manifestOf := func(ctx context.Context, digest string) (manifest, error) {
		h, err := v1.NewHash(digest)
		if err != nil {
			return manifest{}, fmt.Errorf("read the manifest: %w", err)
		}
		name, _ := blobName(h)
		raw, err := readFile(ctx, files, name)
		if err != nil {
			return manifest{}, err
		}
		return newManifest(raw, digest, "")
	}
	top := func(ctx context.Context) (manifest, error) {
		raw, err := readFile(ctx, files, "index.json")
		if err != nil {
			return manifest{}, err
		}
		m, err := newManifest(raw, "", string(types.OCIImageIndex))
		if err != nil {
			return manifest{}, err
		}
		list, err := m.index()
		if err != nil {
			return manifest{}, err
		}
		digest, err := findInLayout(list, ref.within)
		if err != nil || digest == "" {
			return m, err
		}
		return manifestOf(ctx, digest)
	}
	return &localStore{files: files, want: ref.digest, top: top, blobName: blobName, manifestOf: manifestOf}
}

// atNumber returns the entry with the number in a name such as "@1". ok reports whether the name
// has this form.
func atNumber[T any](list []T, name string) (entry T, ok bool, err error) {
	n, ok := strings.CutPrefix(name, "@")
	if !ok {
		return entry, false, nil
	}
	i, err := strconv.Atoi(n)
	if err != nil || i < 0 || i >= len(list) {
		return entry, true, fmt.Errorf("it has no image %s: there are %d, from @0", name, len(list))
	}
	return list[i], true, nil
}

// layoutName returns the name of an image in a layout (image-spec annotations.md). containerd
// writes the full name into another annotation.
func layoutName(d v1.Descriptor) string {
	return d.Annotations["org.opencontainers.image.ref.name"]
}

// findInLayout finds a name in a layout and returns its digest. It returns "" for the list itself,
// if its entries are one image for several platforms.
func findInLayout(list *v1.IndexManifest, within string) (string, error) {
	if d, ok, err := atNumber(list.Manifests, within); ok {
		return d.Digest.String(), err
	}
	var has []string
	for _, d := range list.Manifests {
		if within != "" && (layoutName(d) == within || d.Annotations["io.containerd.image.name"] == within) {
			return d.Digest.String(), nil
		}
		if name := layoutName(d); name != "" {
			has = append(has, name)
		}
	}
	slices.Sort(has)
	switch has = slices.Compact(has); {
	case within != "":
		return "", fmt.Errorf("it has no image %q, only %s", within, orNone(has))
	case len(list.Manifests) == 1:
		return list.Manifests[0].Digest.String(), nil
	case len(has) > 1:
		return "", fmt.Errorf("it holds several images: add :NAME for one of %s", orNone(has))
	default:
		return "", nil
	}
}

func orNone(names []string) string {
	const shown = 20
	switch {
	case len(names) == 0:
		return "images without a name"
	case len(names) > shown:
		return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", len(names)-shown)
	default:
		return strings.Join(names, ", ")
	}
}

// savedImage is one image of an archive of docker save (moby image/tarexport: manifestItem).
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// dockerArchive returns the store of an archive of docker save. Such an archive has no manifest for
// registries, so dockerArchive makes one from its files.
func (src Source) dockerArchive(ctx context.Context, ref Reference) (*localStore, error) {
	a, err := src.openArchive(ctx, ref.path)
	if err != nil {
		return nil, err
	}
	blobs := map[v1.Hash]string{}
	made, err := readSaved(ctx, a, ref.within, blobs)
	if err != nil {
		a.close()
		return nil, err
	}
	return &localStore{
		files: a, want: ref.digest,
		top:      func(context.Context) (manifest, error) { return made, nil },
		blobName: func(digest v1.Hash) (string, bool) { name, ok := blobs[digest]; return name, ok },
		manifestOf: func(_ context.Context, digest string) (manifest, error) {
			if made.digest.String() != digest {
				return manifest{}, fmt.Errorf("the archive has changed: it holds %s, not %s", made.digest, digest)
			}
			return made, nil
		},
	}, nil
}

// readSaved makes an image's manifest, and adds the files of its blobs to blobs.
func readSaved(ctx context.Context, a *archive, within string, blobs map[v1.Hash]string) (manifest, error) {
	raw, err := readFile(ctx, a, "manifest.json")
	if err != nil {
		return manifest{}, err
	}
	var images []savedImage
	if err = checkObjects(raw); err == nil {
		err = json.Unmarshal(raw, &images)
	}
	if err != nil {
		return manifest{}, fmt.Errorf("its manifest.json cannot be read: %w", err)
	}
	image, err := findInArchive(images, within)
	if err != nil {
		return manifest{}, err
	}
	rawConfig, err := readFile(ctx, a, image.Config)
	if err != nil {
		return manifest{}, err
	}
	config, err := parseConfig(rawConfig)
	if err != nil {
		return manifest{}, err
	}
	if len(image.Layers) != len(config.RootFS.DiffIDs) {
		return manifest{}, fmt.Errorf("it has %d layers, and its configuration %d", len(image.Layers), len(config.RootFS.DiffIDs))
	}
	digest := digestOf(rawConfig)
	blobs[digest] = image.Config
	out := v1.Manifest{SchemaVersion: 2, MediaType: types.DockerManifestSchema2, Layers: []v1.Descriptor{}}
	out.Config = v1.Descriptor{MediaType: types.DockerConfigJSON, Digest: digest, Size: int64(len(rawConfig))}
	for i, name := range image.Layers {
		d, err := savedLayer(ctx, a, name, config.RootFS.DiffIDs[i])
		if err != nil {
			return manifest{}, err
		}
		blobs[d.Digest] = name
		out.Layers = append(out.Layers, d)
	}
	if raw, err = json.Marshal(out); err != nil {
		return manifest{}, fmt.Errorf("make its manifest: %w", err)
	}
	return newManifest(raw, "", "")
}

// findInArchive finds an image in an archive: by its name, by its number, or the only one.
func findInArchive(images []savedImage, within string) (savedImage, error) {
	if image, ok, err := atNumber(images, within); ok {
		return image, err
	}
	var has []string
	for _, image := range images {
		for _, tag := range image.RepoTags {
			has = append(has, tag)
			named, err := parseNamed(tag)
			if err == nil && within != "" && named.Full() == within {
				return image, nil
			}
		}
	}
	switch {
	case within != "":
		return savedImage{}, fmt.Errorf("it has no image %s, only %s", within, orNone(has))
	case len(images) != 1:
		return savedImage{}, fmt.Errorf("it holds %d images: add :NAME for one of %s", len(images), orNone(has))
	default:
		return images[0], nil
	}
}

// digestName finds the digest in the name of a blob in an archive of crane, or of docker save since
// version 25.
var digestName = regexp.MustCompile(`(?:^blobs/sha256/|^)([0-9a-f]{64})(?:\.tar\.gz)?$`)

// savedLayer describes a layer of an archive. The digest of an uncompressed layer is its diffID.
// The digest of another layer is in its name, or is computed.
func savedLayer(ctx context.Context, a *archive, name string, diffID v1.Hash) (v1.Descriptor, error) {
	f, err := a.open(ctx, name, 0)
	if err != nil {
		return v1.Descriptor{}, err
	}
	d := v1.Descriptor{MediaType: types.DockerUncompressedLayer, Digest: diffID, Size: f.size}
	first := make([]byte, PackingBytes)
	n, err := io.ReadFull(f, first)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return d, fileError(err)
	}
	first = first[:n]
	switch PackingOf(first) {
	case Plain:
		return d, nil
	case Zstd:
		d.MediaType = types.OCILayerZStd
	case Gzip, Bzip2, XZ:
		d.MediaType = types.DockerLayer // there is none for the others
	}
	if m := digestName.FindStringSubmatch(name); m != nil {
		d.Digest = v1.Hash{Algorithm: "sha256", Hex: m[1]}
		return d, nil
	}
	if d.Digest, _, err = v1.SHA256(io.MultiReader(bytes.NewReader(first), f)); err != nil {
		return d, fileError(err)
	}
	return d, nil
}
