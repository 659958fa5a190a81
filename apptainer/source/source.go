package source

import (
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
)

// Source reads images from where their references say: from registries, or
// from local files. Registries on loopback addresses may be spoken to in plain
// HTTP. The zero value asks registries without credentials and opens no local
// file. A Source may be used by several goroutines at once.
type Source struct {
	// Architecture is that of the images wanted, in Go's spelling ("amd64"),
	// with a variant where it matters ("arm/v7"); empty means that of this
	// program. The operating system is Linux.
	Architecture string
	// Transport carries the requests; nil means one like Go's default, that
	// reads proxies from the environment. Certificates of hosts are applied
	// to an *http.Transport only.
	Transport http.RoundTripper
	// Reader, where it is set, is put before what registries send, such as to bound
	// its rate. The time that it takes itself is not the registry's.
	Reader func(ctx context.Context, r io.Reader) io.Reader
	// Stall is how long a registry may stay silent before a request or a
	// layer's connection is given up; zero means one minute. A connection that
	// brings less than a thousand bytes a second in that time is given up as well.
	Stall time.Duration
	// RetryDelay is how long after a first failure of the network or the
	// registry a request is made again, and once more after three times that;
	// zero means one second.
	RetryDelay time.Duration
	// Patience is the longest time that a registry may ask to be left alone
	// (Retry-After) for the request to be made again after it; one that asks
	// for more has failed. Zero means half a minute.
	Patience time.Duration
	// Logins are what to log in to registries with.
	Logins Logins
	// Hosts says how single registries are spoken to, by the host that a
	// reference in full begins with: "docker.io", "registry.site:5000".
	Hosts map[string]Host
	// Known are other hosts that certainly exist, with or without a port. When the
	// name service does not find a registry, it is asked for these, for Hosts and for
	// Docker Hub: if it finds none of them, the error is transient.
	Known []string
	// Resolver looks these names up; nil means Go's default.
	Resolver *net.Resolver
	// Certs are directories with certificates of registries, as Docker has
	// them in /etc/docker/certs.d: HOST/*.crt are authorities to be trusted
	// too, HOST/NAME.cert and NAME.key what to present.
	Certs []string
	// OpenFile opens a local file of an image, and decides whether it may be;
	// nil refuses all. It must not wait for a writer of a named pipe. FilesBelow
	// makes one.
	OpenFile func(path string) (*os.File, error)
	// Closed says whether a local file of an image, which is open, is closed to people
	// who are not to have the image by other ways either; nil says that none is.
	Closed func(f *os.File) bool
}

// Image is one image of one platform, by digest.
type Image struct {
	// Reference is what the image was asked for by.
	Reference Reference
	// Digest is that of the platform's manifest, "sha256:…". It is empty for
	// a SIF, which is used where it lies.
	Digest string
	// Listed is what the reference itself stands for: the digest of a list
	// of platforms, or that of the only one.
	Listed string
	// Architecture is that of the image, in Go's spelling.
	Architecture string
	// Origin is what an image that was brought here from elsewhere was called
	// there, in full and with its digest; empty for others.
	Origin string
	// Private says that the image was got with a login. Then it must not
	// answer for somebody else: Refresh says what it is to theirs.
	Private bool
	// Closed says that it is read from a file that Source.Closed names.
	Closed bool
}

// Pinned gives the image's full name with its digest, which names the same
// content for ever ("docker.io/library/debian@sha256:…").
func (i Image) Pinned() string {
	if i.Origin != "" {
		return i.Origin
	}
	return i.Reference.pinned(i.Digest)
}

// userAgent is what registries see.
const userAgent = "cl-slurm"

// Resolve asks what the reference stands for now. From a registry that takes
// one request, which registries count as a pull. An error is an *ImageError; it
// wraps ctx's when that ended first.
func (src Source) Resolve(ctx context.Context, ref Reference) (Image, error) {
	img, err := src.resolve(ctx, ref)
	if err != nil {
		return Image{}, WrapError(ctx, ref, err)
	}
	return img, nil
}

// Refresh asks whether the reference of an image that was resolved before still
// stands for it, and resolves it anew when not. With a registry that takes one
// request, which is not counted as a pull, unless something has changed. An
// error is as Resolve's: the image must not be used any more by who asks.
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
	digest, err := (&picker{store: s, want: want}).pick(ctx, top)
	if err != nil {
		return Image{}, err
	}
	closed := src.closed(ctx, s, digest)
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
	now, private, err := s.allowed(ctx)
	if err != nil {
		return Image{}, err
	}
	if now != img.Listed {
		return src.resolve(ctx, img.Reference)
	}
	img.Private, img.Closed = private, src.closed(ctx, s, img.Digest)
	return img, nil
}

// resolveSIF looks what a SIF is for.
func (src Source) resolveSIF(ref Reference) (_ Image, err error) {
	f, err := src.regular(ref.path)
	if err != nil {
		return Image{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	container, err := sifconfig.Load(f)
	if err != nil {
		return Image{}, sentence{text: "it is not a SIF", cause: err}
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

// store is where the image of a reference lies.
func (src Source) store(ctx context.Context, ref Reference) (store, error) {
	switch ref.kind {
	case InRegistry:
		return src.remote(ref)
	case DockerArchive:
		return src.dockerArchive(ctx, ref)
	case OCILayout:
		return src.layout(ref), nil
	case OCIArchive:
		return src.ociArchive(ctx, ref)
	case SIF:
		return nil, errors.New("it is a SIF, which has no layers")
	default:
		return nil, errors.New("no reference")
	}
}

func (src Source) platform() platform {
	if src.Architecture == "" {
		return parsePlatform(runtime.GOARCH)
	}
	return parsePlatform(src.Architecture)
}

func (src Source) stall() time.Duration {
	if src.Stall == 0 {
		return time.Minute
	}
	return src.Stall
}

func (src Source) retryDelay() time.Duration {
	if src.RetryDelay == 0 {
		return time.Second
	}
	return src.RetryDelay
}

func (src Source) patience() time.Duration {
	if src.Patience == 0 {
		return 30 * time.Second
	}
	return src.Patience
}
