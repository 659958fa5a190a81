package source

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/distribution/reference"
)

// Kind is the kind of a reference.
type Kind string

// The kinds of references.
const (
	// InRegistry is an image in a registry: "debian:12", "docker://ghcr.io/a/b".
	InRegistry Kind = "docker"
	// DockerArchive is a file of docker save: "docker-archive:/data/images.tar:debian:12".
	DockerArchive Kind = "docker-archive"
	// OCILayout is a directory in OCI's image layout: "oci:/data/images:tag".
	OCILayout Kind = "oci"
	// OCIArchive is such a directory in a tar file: "oci-archive:/data/x.tar".
	OCIArchive Kind = "oci-archive"
	// SIF is a SIF in a file: "/data/x.sif".
	SIF Kind = "sif"
)

// Reference names an image as Docker and Apptainer do: in a registry, by default Docker Hub and the
// tag "latest", or in a local file. ParseReference parses the text that String returns. The zero
// value names nothing.
type Reference struct {
	text string
	kind Kind

	host, repository string // in a registry: "docker.io", "library/debian"
	tag              string // empty if there is a digest

	path   string // of a local file
	within string // the name of an image in it; empty for the only one

	digest string // empty for the current one
}

// ParseReference parses s. The name of a registry's image may begin with docker://, as in
// Apptainer. Local files have absolute paths. An error is an *ImageError: no image can have the
// name, or it uses an unsupported transport of Apptainer.
func ParseReference(s string) (Reference, error) {
	ref, err := parseReference(s)
	if err != nil {
		return Reference{}, &ImageError{Reference: s, Err: err}
	}
	ref.text = s
	return ref, nil
}

func parseReference(s string) (Reference, error) {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return Reference{}, errors.New("this is not the name of an image: it has control characters in it")
	}
	transport, rest, _ := strings.Cut(s, ":")
	kind := Kind(transport)
	switch {
	case rest != "" && (kind == DockerArchive || kind == OCILayout || kind == OCIArchive):
		return parseLocal(kind, rest)
	case strings.HasPrefix(s, "docker://"):
		s = strings.TrimPrefix(s, "docker://")
	case strings.HasSuffix(s, ".sif"):
		return parseSIF(s)
	case strings.HasPrefix(s, "/"), strings.HasPrefix(s, "./"), strings.HasPrefix(s, "../"):
		return Reference{}, errors.New("a file that is used by its path has to be a SIF, whose name ends in .sif")
	}
	if transport := otherTransport(s); transport != "" {
		return Reference{}, errors.New(transport + " is not handled: give the image as registry/name:tag, or as docker-archive:, oci:, oci-archive: or a .sif file")
	}
	return parseNamed(s)
}

// parseNamed parses a name as Docker does. Of a tag and a digest, the digest counts
// (distribution/reference: ParseDockerRef).
func parseNamed(s string) (Reference, error) {
	named, err := reference.ParseDockerRef(s)
	if err != nil {
		return Reference{}, plainError{text: "this is not the name of an image in a registry", cause: err}
	}
	ref := Reference{kind: InRegistry, host: reference.Domain(named), repository: reference.Path(named)}
	switch named := named.(type) {
	case reference.Digested:
		ref.digest = named.Digest().String()
	case reference.Tagged:
		ref.tag = named.Tag()
	}
	return ref, nil
}

// parseLocal parses PATH[:IMAGE]. The first colon ends the path, as in skopeo and Apptainer
// (containers/image docker/archive/transport.go: ParseReference; oci/internal: SplitPathAndImage).
func parseLocal(kind Kind, s string) (Reference, error) {
	name, digest := cutDigest(s)
	path, within, named := strings.Cut(name, ":")
	ref := Reference{kind: kind, path: filepath.Clean(path), within: within, digest: digest}
	switch {
	case !filepath.IsAbs(path):
		return Reference{}, fmt.Errorf("give its absolute path, such as %s:/data/images/x", kind)
	case named && within == "":
		return Reference{}, errors.New("it has no image's name after the last colon")
	case kind == DockerArchive && named && !strings.HasPrefix(within, "@"):
		image, err := parseNamed(within)
		if err != nil || image.tag == "" {
			return Reference{}, plainError{text: fmt.Sprintf("%q is not the name of an image in an archive, such as debian:12", within), cause: err}
		}
		ref.within = image.Full()
	}
	return ref, nil
}

// cutDigest splits off the digest that PinnedReference appends.
func cutDigest(s string) (name, digest string) {
	i := strings.LastIndex(s, "@sha256:")
	if i < 0 || !isHex(s[i+len("@sha256:"):]) {
		return s, ""
	}
	return s[:i], s[i+1:]
}

// isHex reports whether s is the hexadecimal part of a SHA-256 digest.
func isHex(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

func parseSIF(s string) (Reference, error) {
	if !filepath.IsAbs(s) {
		return Reference{}, errors.New("give the absolute path of the SIF, such as /data/images/x.sif")
	}
	return Reference{kind: SIF, path: filepath.Clean(s)}, nil
}

// otherTransport returns an unsupported transport that could be mistaken for the host of a
// registry, or "".
func otherTransport(s string) string {
	for _, transport := range []string{"docker-daemon:", "library:", "shub:", "oras:", "file:", "http:", "https:"} {
		if strings.HasPrefix(s, transport) {
			return transport
		}
	}
	if strings.HasPrefix(s, "docker:/") { // docker:24 is an image
		return "docker:"
	}
	return ""
}

// String returns the reference as it was written.
func (r Reference) String() string { return r.text }

// Kind returns the kind of the reference. It is empty for the zero value.
func (r Reference) Kind() Kind { return r.kind }

// Path returns the path of the local file or directory, absolute and clean. It is empty for an
// image in a registry. Source.OpenFile decides whether it may be read.
func (r Reference) Path() string { return r.path }

// Full returns the full reference: registry, repository, and tag or digest; or transport, path,
// name, and digest.
func (r Reference) Full() string {
	if r.kind == InRegistry && r.tag != "" {
		return r.host + "/" + r.repository + ":" + r.tag
	}
	return r.withDigest(r.digest)
}

// withDigest returns the full reference with a digest, unless that is empty.
func (r Reference) withDigest(digest string) string {
	name := r.path
	switch r.kind {
	case InRegistry:
		name = r.host + "/" + r.repository
	case DockerArchive, OCILayout, OCIArchive:
		name = string(r.kind) + ":" + r.path
		if r.within != "" {
			name += ":" + r.within
		}
	case SIF:
	}
	if digest == "" {
		return name
	}
	return name + "@" + digest
}
