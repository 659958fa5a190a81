package apptainer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer"
)

func TestReferencesReadAsDockerReadsThem(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	for in, want := range map[string]string{
		"debian":                        "index.docker.io/library/debian:latest",
		"debian:12":                     "index.docker.io/library/debian:12",
		"codalab/default-cpu":           "index.docker.io/codalab/default-cpu:latest",
		"docker.io/library/debian":      "index.docker.io/library/debian:latest",
		"ghcr.io/a/b/c:v1":              "ghcr.io/a/b/c:v1",
		"127.0.0.1:5000/x":              "127.0.0.1:5000/x:latest",
		"localhost/x":                   "localhost/x:latest",
		"debian@" + digest:              "index.docker.io/library/debian@" + digest,
		"registry:5000/a_b/c-d:Tag.1_2": "registry:5000/a_b/c-d:Tag.1_2",
	} {
		ref, err := apptainer.ParseReference(in)
		if err != nil || ref.Name() != want || ref.String() != in {
			t.Errorf("%q reads as %q (%v), want %q", in, ref.Name(), err, want)
		}
	}
}

func TestNamesThatNoImageHasAreRefused(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", ":latest", "a b", "UPPER/case", "a@sha256:short", "a:", "http://x/y", "a\nb"} {
		_, err := apptainer.ParseReference(in)
		var e *apptainer.ImageError
		if !errors.As(err, &e) || e.Transient() || e.Image != in {
			t.Errorf("%q: error %v, want a final *ImageError", in, err)
		}
	}
}

func FuzzParseReference(f *testing.F) {
	f.Add("debian:12")
	f.Add("127.0.0.1:5000/a/b@sha256:" + strings.Repeat("0", 64))
	f.Fuzz(func(t *testing.T, in string) {
		ref, err := apptainer.ParseReference(in)
		if err != nil {
			return
		}
		again, err := apptainer.ParseReference(ref.Name())
		if err != nil || again.Name() != ref.Name() {
			t.Errorf("%q reads as %q, and that as %q (%v)", in, ref.Name(), again.Name(), err)
		}
	})
}
