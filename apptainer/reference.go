package apptainer

import (
	"errors"

	"github.com/google/go-containerregistry/pkg/name"
)

// Reference names an image in a registry as Docker reads it: without a
// registry it is Docker Hub's, without a tag or digest it is "latest". The
// zero value names nothing; ParseReference makes one.
type Reference struct {
	text string
	ref  name.Reference
}

// ParseReference reads s. A name that no registry could hold is an
// *ImageError.
func ParseReference(s string) (Reference, error) {
	ref, err := name.ParseReference(s, name.WeakValidation)
	if err != nil {
		return Reference{}, &ImageError{Image: s, Op: "read the name", Err: sentence{"this is not the name of an image in a registry", err}}
	}
	return Reference{text: s, ref: ref}, nil
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
