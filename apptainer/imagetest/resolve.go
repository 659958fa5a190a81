package imagetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// Source is one that does not wait long.
func Source() source.Source { return source.Source{RetryDelay: time.Millisecond} }

// Reference parses a name.
func Reference(tb testing.TB, name string) source.Reference {
	tb.Helper()
	ref, err := source.ParseReference(name)
	if err != nil {
		tb.Fatal(err)
	}
	return ref
}

// Resolve gives the image that a name stands for, for this machine.
func Resolve(tb testing.TB, name string) source.Image {
	tb.Helper()
	img, err := Source().Resolve(tb.Context(), Reference(tb, name))
	if err != nil {
		tb.Fatal(err)
	}
	return img
}

// WantError wants an *source.ImageError of that kind and with those words, in one
// line that names its image.
func WantError(tb testing.TB, err error, transient bool, words string) {
	tb.Helper()
	var e *source.ImageError
	if !errors.As(err, &e) {
		tb.Fatalf("error %v, want an *ImageError", err)
	}
	if e.Transient() != transient || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), `image "`+e.Image+`": `) {
		tb.Errorf("error %q, transient %v; want transient %v and the words %q", err, e.Transient(), transient, words)
	}
	if strings.Contains(err.Error(), "\n") {
		tb.Errorf("error %q is not one sentence", err)
	}
}
