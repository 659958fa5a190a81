package apptainer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Registry reads images from the registries that their references name,
// without credentials. Registries on loopback addresses are spoken to in plain
// HTTP. The zero value is usable, and a Registry may be used by several
// goroutines at once.
type Registry struct {
	// Architecture is that of the images wanted, in Go's spelling ("amd64");
	// empty means that of this program. The operating system is Linux.
	Architecture string
	// Transport carries the requests; nil means one like Go's default, that
	// reads proxies from the environment.
	Transport http.RoundTripper
	// Stall is how long a registry may stay silent before a request or a
	// layer is given up; zero means one minute.
	Stall time.Duration
	// RetryDelay is how long after a first failure of the network or the
	// registry a request is made again, and once more after three times that;
	// zero means one second.
	RetryDelay time.Duration
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
// content for ever ("index.docker.io/library/debian@sha256:…").
func (i Image) Pinned() string {
	ref, err := i.Reference.pinned(i.Digest)
	if err != nil {
		return i.Digest
	}
	return ref.Name()
}

// userAgent is what registries see.
const userAgent = "cl-slurm"

// Resolve asks the registry what the reference stands for now, in one request.
// An error is an *ImageError; it wraps ctx's when that ended first.
func (r Registry) Resolve(ctx context.Context, ref Reference) (Image, error) {
	img, err := r.resolve(ctx, ref)
	if err != nil {
		return Image{}, imageError(ctx, ref, err)
	}
	return img, nil
}

func (r Registry) resolve(ctx context.Context, ref Reference) (Image, error) {
	if ref.ref == nil {
		return Image{}, errors.New("no reference")
	}
	img := Image{Reference: ref, Architecture: r.architecture()}
	options, hangUp := r.options(ctx)
	defer hangUp()
	desc, err := remote.Get(ref.ref, options...)
	if err != nil {
		return Image{}, fmt.Errorf("ask the registry: %w", err)
	}
	switch desc.MediaType { //nolint:exhaustive // of all types these are manifests
	case types.DockerManifestSchema2, types.OCIManifestSchema1:
		img.Digest = desc.Digest.String()
	case types.DockerManifestList, types.OCIImageIndex:
		index, err := desc.ImageIndex()
		if err != nil {
			return Image{}, fmt.Errorf("read the list of platforms: %w", err)
		}
		if img.Digest, err = pickPlatform(index, img.Architecture); err != nil {
			return Image{}, err
		}
	case types.DockerManifestSchema1, types.DockerManifestSchema1Signed:
		return Image{}, errors.New("its manifest is of Docker's old schema 1, which is not handled: push the image again with a Docker from after 2017")
	default:
		return Image{}, fmt.Errorf("it is not a container image but %s", desc.MediaType)
	}
	return img, nil
}

// pickPlatform finds the Linux image for an architecture in a list. Of several
// variants the one without, or the newest, is taken.
func pickPlatform(index v1.ImageIndex, architecture string) (string, error) {
	list, err := index.IndexManifest()
	if err != nil {
		return "", fmt.Errorf("read the list of platforms: %w", err)
	}
	var found *v1.Descriptor
	var has []string
	for _, m := range list.Manifests {
		if m.Platform == nil || m.Platform.OS == "unknown" {
			continue // such as an attestation
		}
		has = append(has, m.Platform.String())
		if m.Platform.OS != "linux" || m.Platform.Architecture != architecture {
			continue
		}
		if found == nil || found.Platform.Variant != "" && (m.Platform.Variant == "" || m.Platform.Variant > found.Platform.Variant) {
			found = &m
		}
	}
	if found == nil {
		slices.Sort(has)
		return "", fmt.Errorf("it is not made for linux/%s, only for %s", architecture, strings.Join(slices.Compact(has), ", "))
	}
	return found.Digest.String(), nil
}

func (r Registry) architecture() string {
	if r.Architecture == "" {
		return runtime.GOARCH
	}
	return r.Architecture
}

func (r Registry) stall() time.Duration {
	if r.Stall == 0 {
		return time.Minute
	}
	return r.Stall
}

// options are those of every request; hangUp closes what they have opened.
func (r Registry) options(ctx context.Context) (options []remote.Option, hangUp func()) {
	transport, hangUp := r.Transport, func() {}
	if transport == nil {
		transport = remote.DefaultTransport
	}
	if t, ok := transport.(*http.Transport); ok && t.ResponseHeaderTimeout == 0 {
		t = t.Clone()
		t.ResponseHeaderTimeout = r.stall()
		transport, hangUp = t, t.CloseIdleConnections
	}
	delay := r.RetryDelay
	if delay == 0 {
		delay = time.Second
	}
	options = []remote.Option{
		remote.WithContext(ctx),
		remote.WithTransport(resuming{transport, delay}),
		remote.WithAuth(authn.Anonymous),
		remote.WithUserAgent(userAgent),
		remote.WithRetryBackoff(remote.Backoff{Duration: delay, Factor: 3, Jitter: 0.1, Steps: 3}),
	}
	return options, hangUp
}
