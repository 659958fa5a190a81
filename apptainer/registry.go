package apptainer

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Registry reads images from the registries that their references name.
// Registries on loopback addresses are spoken to in plain HTTP. The zero value
// is usable, and a Registry may be used by several goroutines at once.
type Registry struct {
	// Architecture is that of the images wanted, in Go's spelling ("amd64");
	// empty means that of this program. The operating system is Linux.
	Architecture string
	// Transport carries the requests; nil means a transport of usual time-outs.
	Transport http.RoundTripper
	// Stall is how long a registry may stay silent before a request or a
	// layer is given up; zero means one minute.
	Stall time.Duration
}

// Image is one image of one platform, by digest.
type Image struct {
	// Reference is what the image was asked for by.
	Reference Reference
	// Digest is that of the platform's manifest, "sha256:…".
	Digest string
	// Architecture is that of the image, in Go's spelling.
	Architecture string
}

// Pinned gives the image's full name with its digest, which names the same
// content for ever ("docker.io/library/debian@sha256:…").
func (i Image) Pinned() string { return i.Reference.pinned(i.Digest) }

// Resolve asks the registry what the reference stands for now. An error is an
// *ImageError, or wraps ctx's when that ended first.
func (r Registry) Resolve(ctx context.Context, ref Reference) (Image, error) {
	return Image{}, errors.New("not implemented")
}
