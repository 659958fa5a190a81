package source

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// maxListDepth limits the nesting of lists of platforms, and maxListReads the manifests that are
// read to find a platform.
const (
	maxListDepth = 3
	maxListReads = 16
)

// platform is Linux on a processor.
type platform struct{ architecture, variant string }

// parsePlatform parses "arm64" or "arm/v7".
func parsePlatform(s string) platform {
	architecture, variant, _ := strings.Cut(s, "/")
	return normalPlatform(architecture, variant)
}

// IsLinux reports whether an image's operating system is Linux. Like Docker, it ignores the case
// (containerd/platforms database.go: normalizeOS).
func IsLinux(os string) bool { return strings.EqualFold(os, "linux") }

// NormalArchitecture returns an architecture's name in Go.
func NormalArchitecture(architecture string) string {
	return normalPlatform(architecture, "").architecture
}

// normalPlatform gives an architecture its name in Go, and a default variant (containerd/platforms
// database.go: normalizeArch).
func normalPlatform(architecture, variant string) platform {
	switch architecture = strings.ToLower(architecture); architecture {
	case "x86_64", "x86-64":
		architecture = "amd64"
	case "aarch64":
		architecture = "arm64"
	}
	if variant = strings.ToLower(variant); variant != "" && variant[0] != 'v' {
		variant = "v" + variant
	}
	if variant == "" {
		variant = map[string]string{"amd64": "v1", "arm": "v7", "arm64": "v8"}[architecture]
	}
	return platform{architecture, variant}
}

// String names the platform as Docker does.
func (p platform) String() string {
	if p == normalPlatform(p.architecture, "") {
		return "linux/" + p.architecture
	}
	return "linux/" + p.architecture + "/" + p.variant
}

// rank rates an image for another platform on this one: 1 is best, and 0 means that it does not
// run. A variant runs images for lower ones (containerd/platforms compare.go: platformVector).
func (p platform) rank(other *v1.Platform) int {
	image := normalPlatform(other.Architecture, other.Variant)
	switch {
	case !IsLinux(other.OS) || image.architecture != p.architecture:
		return 0
	case image.variant == p.variant:
		return 1
	}
	for i, variant := range lowerVariants(p) {
		if image.variant == variant {
			return 2 + i
		}
	}
	return 0
}

// lowerVariants returns the variants below p's, the highest first.
func lowerVariants(p platform) []string {
	below := map[string][]string{
		"amd64": {"v4", "v3", "v2", "v1"},
		"arm":   {"v8", "v7", "v6", "v5"},
		"arm64": {"v9", "v8"},
	}[p.architecture]
	for i, variant := range below {
		if variant == p.variant {
			return below[i+1:]
		}
	}
	if p.architecture == "arm64" { // such as v8.2
		return []string{"v8"}
	}
	return nil
}

// platformPicker finds the image of one platform in lists.
type platformPicker struct {
	store store
	want  platform

	reads int      // the number of manifests that may still be read
	found []string // the platforms of images
}

// pick returns the digest of the image for the platform. top is that image or a list.
func (p *platformPicker) pick(ctx context.Context, top manifest) (string, error) {
	p.reads = maxListReads
	digest, err := p.searchManifest(ctx, top, 0)
	if err != nil || digest != "" {
		return digest, err
	}
	if len(p.found) == 0 {
		return "", fmt.Errorf("it is not made for %s: its list of platforms has no image in it", p.want)
	}
	slices.Sort(p.found)
	return "", fmt.Errorf("it is not made for %s, only for %s", p.want, strings.Join(slices.Compact(p.found), ", "))
}

// searchManifest searches a list: first its images with a platform, then the lists in it, then its
// images without a platform. It returns "" if none fits.
func (p *platformPicker) searchManifest(ctx context.Context, m manifest, depth int) (string, error) {
	if !m.mediaType.IsIndex() {
		return m.digest.String(), checkKind(m)
	}
	list, err := m.index()
	if err != nil {
		return "", err
	}
	var best *v1.Descriptor
	var lists, unknown []v1.Descriptor
	for _, d := range list.Manifests {
		known := d.Platform != nil && d.Platform.OS+d.Platform.Architecture != ""
		switch {
		case isAttestation(d):
		case d.MediaType.IsIndex():
			lists = append(lists, d)
		case !known && d.MediaType.IsImage():
			unknown = append(unknown, d)
		case known:
			p.found = append(p.found, d.Platform.String())
			rank := p.want.rank(d.Platform)
			if rank > 0 && (best == nil || rank < p.want.rank(best.Platform)) {
				best = &d
			}
		}
	}
	if best != nil {
		return best.Digest.String(), nil
	}
	if digest, err := p.searchLists(ctx, lists, depth); err != nil || digest != "" {
		return digest, err
	}
	return p.searchConfigs(ctx, unknown)
}

func (p *platformPicker) searchLists(ctx context.Context, lists []v1.Descriptor, depth int) (string, error) {
	for _, d := range lists {
		if depth == maxListDepth || p.reads == 0 {
			return "", fmt.Errorf("its lists of platforms are nested too deeply")
		}
		p.reads--
		m, err := p.store.manifest(ctx, d.Digest.String())
		if err != nil {
			return "", err
		}
		if digest, err := p.searchManifest(ctx, m, depth+1); err != nil || digest != "" {
			return digest, err
		}
	}
	return "", nil
}

// searchConfigs reads the configurations of images without a platform in the list, as containerd
// does (core/images/image.go: Manifest).
func (p *platformPicker) searchConfigs(ctx context.Context, images []v1.Descriptor) (string, error) {
	for _, d := range images {
		if p.reads == 0 {
			break
		}
		p.reads--
		m, err := p.store.manifest(ctx, d.Digest.String())
		if err != nil {
			return "", err
		}
		_, config, err := readConfigBlob(ctx, p.store, m)
		if err != nil {
			return "", err
		}
		is := v1.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}
		if is.OS == "" {
			is.OS = "linux"
		}
		p.found = append(p.found, is.String())
		if p.want.rank(&is) > 0 {
			return d.Digest.String(), nil
		}
	}
	return "", nil
}

// isAttestation reports whether a list's entry is metadata about an image (BuildKit,
// docs/attestations/attestation-storage.md).
func isAttestation(d v1.Descriptor) bool {
	return d.Annotations["vnd.docker.reference.type"] != "" || d.Platform != nil && d.Platform.OS == "unknown"
}

// checkKind refuses a manifest that is not of a container image.
func checkKind(m manifest) error {
	switch m.mediaType {
	case types.DockerManifestSchema2, types.OCIManifestSchema1:
	case types.DockerManifestSchema1, types.DockerManifestSchema1Signed:
		return fmt.Errorf("its manifest is of Docker's old schema 1, which is not handled: pull it with a Docker from before 2024 and push it again")
	default: // only these types are manifests
		return fmt.Errorf("it is not a container image but %s", m.mediaType)
	}
	image, err := m.image()
	if err != nil {
		return err
	}
	switch kind := image.Config.MediaType; kind {
	case types.DockerConfigJSON, types.OCIConfigJSON, "", "application/octet-stream":
		return nil
	case "application/vnd.sylabs.sif.config.v1+json":
		return fmt.Errorf("it is a SIF in a registry, which is not handled: pull it with apptainer pull oras://… and give the file")
	default: // only these types are configurations
		return fmt.Errorf("it is not a container image but %s", kind)
	}
}
