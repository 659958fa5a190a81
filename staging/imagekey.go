package staging

import (
	"strings"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
)

// Shown is an image as Docker names it by digest ("python@sha256:…"), by which it
// may be asked for again (codalab/worker/docker_image_manager.py:
// _image_availability_state reports RepoDigests; bundle_util.py: mimic_bundles
// asks for what was reported).
func Shown(img source.Image) string { return ShortName(img.Pinned()) }

// ShortName is a full name as people write it: without Docker Hub's parts.
func ShortName(full string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(full, "index."), "docker.io/")
	if rest, ok := strings.CutPrefix(name, "library/"); ok && !strings.Contains(rest, "/") {
		return rest
	}
	return name
}

// key is that of the SIF that the Converter makes of an image.
func (im *Images) key(img source.Image) cache.Key {
	return cache.Key{Kind: sifKind, ID: img.Digest + " " + img.Architecture + " " + im.Converter.Settings()}
}

// ImageKey is what the key of a SIF in the cache tells of it.
type ImageKey struct {
	// Digest is that of the platform's manifest, Settings those of the conversion.
	Digest, Architecture, Settings string
}

// ImageOf reads the key of a SIF. It is false for those of other entries.
func ImageOf(key cache.Key) (img ImageKey, ok bool) {
	if key.Kind != sifKind {
		return img, false
	}
	img.Digest, img.Settings, _ = strings.Cut(key.ID, " ")
	img.Architecture, img.Settings, ok = strings.Cut(img.Settings, " ")
	return img, ok
}

// sifKind is the kind of the cache's entries that are images.
const sifKind = "sif"
