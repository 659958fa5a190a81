package apptainer_test

import (
	"errors"
	"fmt"
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
		"docker:24-dind":                "index.docker.io/library/docker:24-dind",
		"library/debian":                "index.docker.io/library/debian:latest",
		"oci":                           "index.docker.io/library/oci:latest",
		"docker://debian:12":            "index.docker.io/library/debian:12",
		"docker://ghcr.io/a/b":          "ghcr.io/a/b:latest",
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

func TestImagesElsewhereAreRefusedByName(t *testing.T) {
	t.Parallel()
	for in, what := range map[string]string{
		"docker-archive:/data/x.tar": "docker-archive:", "docker-archive:x.tar": "docker-archive:",
		"docker-daemon:x:latest": "docker-daemon:", "docker:/x": "docker:", "docker://docker://x": "docker:",
		"oci:/data/x:tag": "oci:", "oci-archive:x.tar": "oci-archive:", "library://a/b/c:1": "library:",
		"shub://a/b": "shub:", "oras://ghcr.io/a/b:1": "oras:", "file:///data/x": "file:", "https://host/x": "https:",
		"/shared/x.sif": "a SIF", "./x.sif": "a SIF", "x.sif": "a SIF", "host:5000/x.sif": "a SIF",
	} {
		_, err := apptainer.ParseReference(in)
		want := fmt.Sprintf("image %q: %s is not handled: give the image as registry/name:tag", in, what)
		var e *apptainer.ImageError
		if !errors.As(err, &e) || e.Transient() || err.Error() != want {
			t.Errorf("%q: error %v, want %s", in, err, want)
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
