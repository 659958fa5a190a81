package apptainer

import (
	"errors"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// Reference names an image in a registry as Docker reads it: without a
// registry it is Docker Hub's, without a tag or digest it is "latest". The
// zero value names nothing; ParseReference makes one.
type Reference struct {
	text string
	ref  name.Reference
}

// ParseReference reads s, which may begin with docker://, as Apptainer writes
// it. A name that no registry could hold is an *ImageError, and so is an image
// of another transport of Apptainer's, or a file.
func ParseReference(s string) (Reference, error) {
	plain := strings.TrimPrefix(s, "docker://")
	if what := elsewhere(plain); what != "" {
		return Reference{}, &ImageError{Image: s, Err: errors.New(what + " is not handled: give the image as registry/name:tag")}
	}
	ref, err := name.ParseReference(plain, name.WeakValidation)
	if err != nil {
		return Reference{}, &ImageError{Image: s, Err: sentence{"this is not the name of an image in a registry", err}}
	}
	return Reference{text: s, ref: ref}, nil
}

// elsewhere names what a name stands for that is in no registry, or nothing.
// A transport would be taken for the host of a registry.
func elsewhere(s string) string {
	for _, transport := range []string{
		"docker-archive:", "docker-daemon:", "oci:", "oci-archive:", "library:", "shub:", "oras:", "file:", "http:", "https:",
	} {
		if strings.HasPrefix(s, transport) {
			return transport
		}
	}
	switch {
	case strings.HasPrefix(s, "docker:/"): // docker:24 is an image
		return "docker:"
	case strings.HasSuffix(s, ".sif"):
		return "a SIF"
	}
	return ""
}

// String gives the reference as it was written.
func (r Reference) String() string { return r.text }

// Name gives the reference in full: registry, repository, and tag or digest.
func (r Reference) Name() string {
	if r.ref == nil {
		return ""
	}
	return r.ref.Name()
}

// host is the registry's.
func (r Reference) host() string {
	if r.ref == nil {
		return ""
	}
	return r.ref.Context().RegistryStr()
}

// pinned names one manifest of the repository.
func (r Reference) pinned(digest string) (name.Digest, error) {
	if r.ref == nil {
		return name.Digest{}, errors.New("no reference")
	}
	return r.ref.Context().Digest(digest), nil
}
