package apptainer_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer"
)

// quick is a client that does not wait long.
func quick() apptainer.Registry { return apptainer.Registry{RetryDelay: time.Millisecond} }

func reference(tb testing.TB, name string) apptainer.Reference {
	tb.Helper()
	ref, err := apptainer.ParseReference(name)
	if err != nil {
		tb.Fatal(err)
	}
	return ref
}

func resolve(tb testing.TB, name string) apptainer.Image {
	tb.Helper()
	img, err := quick().Resolve(tb.Context(), reference(tb, name))
	if err != nil {
		tb.Fatal(err)
	}
	return img
}
