package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/outbound"
)

// Source reads images from registries or local files, as their references name them. Registries on
// loopback addresses may use plain HTTP. The zero value uses registries without logins and opens no
// local file. Several goroutines may use a Source at the same time.
type Source struct {
	// Architecture is the wanted architecture in Go's spelling ("amd64"), with a variant if it
	// matters ("arm/v7"); empty means this program's. The operating system is Linux.
	Architecture string
	// Private lists places of the site's own network that registries and their redirections may be at,
	// besides those in Hosts. Others have to be public.
	Private outbound.Places
	// Transport makes the requests; nil means one like Go's default, which reads proxies from the
	// environment. Only that one keeps to Private. Certs apply only to an *http.Transport.
	Transport http.RoundTripper
	// Reader wraps the data from registries, for example to limit its rate; nil means no wrapper.
	// Its delays do not count for Stall.
	Reader func(ctx context.Context, r io.Reader) io.Reader
	// Stall is the time for which a registry may be silent before a request or a layer's connection
	// fails; zero means one minute. A connection also fails if it brings less than a thousand bytes
	// a second on average over that time.
	Stall time.Duration
	// RetryDelay is the pause before a request is repeated after a first failure of the network or
	// the registry. After a second failure the pause is twice as long. Zero means one second.
	RetryDelay time.Duration
	// MaxRetryAfter is the longest Retry-After of a registry for which a request waits. With a
	// longer one it fails. Zero means half a minute.
	MaxRetryAfter time.Duration
	Logins        Logins
	// Hosts configures the access to registries, by the host at the begin of a full reference:
	// "docker.io", "registry.site:5000".
	Hosts map[string]Host
	// Known are other hosts that certainly exist, with or without a port. If the name service finds
	// neither a registry nor any of Known, Hosts and Docker Hub, the error is transient.
	Known []string
	// Resolver looks names up; nil means Go's default.
	Resolver *net.Resolver
	// Certs are directories with certificates of registries, in the layout of Docker's
	// /etc/docker/certs.d: HOST/*.crt are additional authorities to trust, and HOST/NAME.cert and
	// NAME.key are presented.
	Certs []string
	// OpenFile opens a local file of an image, or refuses to; nil refuses all. It must not wait for
	// a writer of a named pipe. FilesBelow returns one.
	OpenFile func(path string) (*os.File, error)
	// Closed reports whether the permissions of an image's open file exclude some users. A cache
	// must not give these the image either. Nil means that no file is closed.
	Closed func(f *os.File) bool
}

// Image is one image of one platform, by digest.
type Image struct {
	Reference Reference // the resolved reference
	// Digest is the digest of the platform's manifest, "sha256:…". It is empty for a SIF, which is
	// used in place.
	Digest string
	// Listed is the digest of the reference itself: of a list of platforms, or of the only
	// manifest.
	Listed string
	// Architecture is the image's architecture in Go's spelling.
	Architecture string
	// Origin is the pinned reference of a pulled image at its source; empty for others.
	Origin string
	// Private is set if the image was read with a login. Another person may have it only after
	// Refresh with their logins.
	Private bool
	// Closed is set if it was read from a file for which Source.Closed returned true.
	Closed bool
}

// PinnedReference returns the image's full reference with its digest, which always means the same content
// ("docker.io/library/debian@sha256:…").
func (i Image) PinnedReference() string {
	if i.Origin != "" {
		return i.Origin
	}
	return i.Reference.withDigest(i.Digest)
}

// userAgent is the program's name in requests to registries.
const userAgent = "cl-slurm"

// Resolve returns the current image of the reference. With a registry it makes one request, which
// registries count as a pull. An error is an *ImageError. It wraps ctx's error if that ended first.
func (src Source) Resolve(ctx context.Context, ref Reference) (Image, error) {
	img, err := src.resolve(ctx, ref)
	if err != nil {
		return Image{}, WrapError(ctx, ref, err)
	}
	return img, nil
}

// Refresh checks, with the logins of this Source, whether the reference of a resolved image still
// means that image, and resolves it again if not. With a registry it makes one request, which
// counts as a pull only if something has changed. Its errors are like Resolve's: after one, the
// caller must not use the image any more.
func (src Source) Refresh(ctx context.Context, img Image) (Image, error) {
	now, err := src.refresh(ctx, img)
	if err != nil {
		return Image{}, WrapError(ctx, img.Reference, err)
	}
	return now, nil
}

func (src Source) resolve(ctx context.Context, ref Reference) (Image, error) {
	if ref.kind == SIF {
		return src.resolveSIF(ref)
	}
	s, err := src.store(ctx, ref)
	if err != nil {
		return Image{}, err
	}
	defer s.close()
	top, err := s.manifest(ctx, "")
	if err != nil {
		return Image{}, err
	}
	want := src.platform()
	digest, err := (&platformPicker{store: s, want: want}).pick(ctx, top)
	if err != nil {
		return Image{}, err
	}
	closed := src.isClosed(ctx, s, digest)
	return Image{Reference: ref, Digest: digest, Listed: top.digest.String(), Architecture: want.architecture, Private: top.private, Closed: closed}, nil
}

func (src Source) refresh(ctx context.Context, img Image) (Image, error) {
	if img.Reference.kind == SIF || img.Listed == "" || img.Architecture != src.platform().architecture {
		return src.resolve(ctx, img.Reference)
	}
	s, err := src.store(ctx, img.Reference)
	if err != nil {
		return Image{}, err
	}
	defer s.close()
	now, private, err := s.current(ctx)
	if err != nil {
		return Image{}, err
	}
	if now != img.Listed {
		return src.resolve(ctx, img.Reference)
	}
	img.Private, img.Closed = private, src.isClosed(ctx, s, img.Digest)
	return img, nil
}

func (src Source) resolveSIF(ref Reference) (_ Image, err error) {
	f, err := src.openRegular(ref.path)
	if err != nil {
		return Image{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	container, err := sifconfig.Load(f)
	if err != nil {
		return Image{}, plainError{text: "it is not a SIF", cause: err}
	}
	config, err := sifconfig.Of(container)
	if err != nil {
		return Image{}, fmt.Errorf("read the SIF: %w", err)
	}
	want := src.platform().architecture
	if config.Architecture != want && config.Architecture != "unknown" {
		return Image{}, fmt.Errorf("it is made for linux/%s, not for linux/%s", config.Architecture, want)
	}
	return Image{Reference: ref, Architecture: want}, nil
}

func (src Source) store(ctx context.Context, ref Reference) (store, error) {
	switch ref.kind {
	case InRegistry:
		return src.remote(ref)
	case DockerArchive:
		return src.dockerArchive(ctx, ref)
	case OCILayout:
		return newLayout(directory{src, ref.path}, ref), nil
	case OCIArchive:
		a, err := src.openArchive(ctx, ref.path)
		if err != nil {
			return nil, err
		}
		return newLayout(a, ref), nil
	case SIF:
		return nil, errors.New("it is a SIF, which has no layers")
	default:
		return nil, errors.New("no reference")
	}
}

func (src Source) platform() platform {
	return parsePlatform(cmp.Or(src.Architecture, runtime.GOARCH))
}

func (src Source) stall() time.Duration         { return cmp.Or(src.Stall, time.Minute) }
func (src Source) retryDelay() time.Duration    { return cmp.Or(src.RetryDelay, time.Second) }
func (src Source) maxRetryAfter() time.Duration { return cmp.Or(src.MaxRetryAfter, 30*time.Second) }
