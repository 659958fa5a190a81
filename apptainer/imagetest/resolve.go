package imagetest

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/outbound"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// Source returns a Source that retries without a pause, and reaches registries on loopback.
func Source() source.Source { return source.Source{RetryDelay: time.Millisecond, Private: Loopback()} }

// Loopback returns this machine's places for tests' registries.
func Loopback() outbound.Places {
	return outbound.Places{Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
}

// Reference parses a name.
func Reference(tb testing.TB, name string) source.Reference {
	tb.Helper()
	ref, err := source.ParseReference(name)
	testenv.Must(tb, err)
	return ref
}

// Resolve resolves a name for this machine.
func Resolve(tb testing.TB, name string) source.Image {
	tb.Helper()
	img, err := Source().Resolve(tb.Context(), Reference(tb, name))
	testenv.Must(tb, err)
	return img
}

// WantError fails the test unless err is an *source.ImageError of that kind with those words, on
// one line that names its image.
func WantError(tb testing.TB, err error, transient bool, words string) {
	tb.Helper()
	var e *source.ImageError
	if !errors.As(err, &e) {
		tb.Fatalf("error %v, want an *ImageError", err)
	}
	if e.Transient() != transient || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), `image "`+e.Reference+`": `) {
		tb.Errorf("error %q, transient %v; want transient %v and the words %q", err, e.Transient(), transient, words)
	}
	if strings.Contains(err.Error(), "\n") {
		tb.Errorf("error %q is not one sentence", err)
	}
}
