package apptainer

import (
	"fmt"

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
		return Reference{}, &ImageError{Image: s, Op: "read the name", Err: err}
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

// Pinned gives the full name of the repository with the digest of one
// manifest in it, as docker pull takes it.
func (r Reference) pinned(digest string) string {
	return fmt.Sprintf("%s@%s", r.ref.Context().Name(), digest)
}
