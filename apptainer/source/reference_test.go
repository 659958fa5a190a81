package source_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

func TestReferencesReadAsDockerReadsThem(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	for in, want := range map[string]string{
		"debian":                        "docker.io/library/debian:latest",
		"debian:12":                     "docker.io/library/debian:12",
		"codalab/default-cpu":           "docker.io/codalab/default-cpu:latest",
		"docker.io/library/debian":      "docker.io/library/debian:latest",
		"ghcr.io/a/b/c:v1":              "ghcr.io/a/b/c:v1",
		"127.0.0.1:5000/x":              "127.0.0.1:5000/x:latest",
		"localhost/x":                   "localhost/x:latest",
		"debian@" + digest:              "docker.io/library/debian@" + digest,
		"docker:24-dind":                "docker.io/library/docker:24-dind",
		"debian:12@" + digest:           "docker.io/library/debian@" + digest,
		"index.docker.io/a/b":           "docker.io/a/b:latest",
		"UPPER/case":                    "UPPER/case:latest",
		"library/debian":                "docker.io/library/debian:latest",
		"oci":                           "docker.io/library/oci:latest",
		"docker://debian:12":            "docker.io/library/debian:12",
		"docker://ghcr.io/a/b":          "ghcr.io/a/b:latest",
		"registry:5000/a_b/c-d:Tag.1_2": "registry:5000/a_b/c-d:Tag.1_2",
	} {
		ref, err := source.ParseReference(in)
		if err != nil || ref.Full() != want || ref.String() != in {
			t.Errorf("%q reads as %q (%v), want %q", in, ref.Full(), err, want)
		}
	}
}

func TestNamesThatNoImageHasAreRefused(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", ":latest", "a b", "library/UPPER", "a@sha256:short", "a:", "http://x/y", "a\nb", strings.Repeat("0a", 32), "a:-tag", "a//b", "-a", "a..b/c", "a@sha256:" + strings.Repeat("0", 63)} {
		_, err := source.ParseReference(in)
		var e *source.ImageError
		if !errors.As(err, &e) || e.Transient() || e.Reference != in {
			t.Errorf("%q: error %v, want a final *ImageError", in, err)
		}
	}
}

func TestLocalImagesReadAsApptainerReadsThem(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	for in, want := range map[string]struct {
		kind       source.Kind
		path, name string
	}{
		"docker-archive:/data/x.tar":                  {source.DockerArchive, "/data/x.tar", "docker-archive:/data/x.tar"},
		"docker-archive:/data/x.tar:debian":           {source.DockerArchive, "/data/x.tar", "docker-archive:/data/x.tar:docker.io/library/debian:latest"},
		"docker-archive:/data/x.tar:h:5/d:1":          {source.DockerArchive, "/data/x.tar", "docker-archive:/data/x.tar:h:5/d:1"},
		"docker-archive:/data/x.tar:@1":               {source.DockerArchive, "/data/x.tar", "docker-archive:/data/x.tar:@1"},
		"docker-archive:/data/x.tar@" + digest:        {source.DockerArchive, "/data/x.tar", "docker-archive:/data/x.tar@" + digest},
		"docker-archive:/data/x.tar:debian@" + digest: {source.DockerArchive, "/data/x.tar", "docker-archive:/data/x.tar:docker.io/library/debian:latest@" + digest},
		"oci:/data/x:v1@" + digest:                    {source.OCILayout, "/data/x", "oci:/data/x:v1@" + digest},
		"docker-archive:///data/x.tar":                {source.DockerArchive, "/data/x.tar", "docker-archive:/data/x.tar"},
		"oci:/data/../data/./x/":                      {source.OCILayout, "/data/x", "oci:/data/x"},
		"oci:/data/x:v1:2":                            {source.OCILayout, "/data/x", "oci:/data/x:v1:2"},
		"oci-archive:/data/x.tar:v1":                  {source.OCIArchive, "/data/x.tar", "oci-archive:/data/x.tar:v1"},
		"/data/a b.sif":                               {source.SIF, "/data/a b.sif", "/data/a b.sif"},
		"docker://x.sif":                              {source.InRegistry, "", "docker.io/library/x.sif:latest"},
		"oci":                                         {source.InRegistry, "", "docker.io/library/oci:latest"},
		"docker://docker-archive:1":                   {source.InRegistry, "", "docker.io/library/docker-archive:1"},
	} {
		ref, err := source.ParseReference(in)
		if err != nil || ref.Kind() != want.kind || ref.Path() != want.path || ref.Full() != want.name || ref.String() != in {
			t.Errorf("%q reads as %s %q, %q (%v); want %+v", in, ref.Kind(), ref.Path(), ref.Full(), err, want)
		}
	}
}

func TestOtherTransportsAreRefusedByName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"docker-archive:x.tar":           "give its absolute path",
		"oci:latest":                     "give its absolute path",
		"oci-archive:../x.tar":           "give its absolute path",
		"oci:/data/x:":                   "no image's name after the last colon",
		"docker-archive:/data/x.tar:B d": `"B d" is not the name of an image in an archive`,
		"docker-archive:/x:a@sha256:" + strings.Repeat("0", 63): "is not the name of an image in an archive",
		"docker-daemon:x:latest":                                "docker-daemon: is not handled",
		"docker:/x":                                             "docker: is not handled",
		"docker://docker://x":                                   "docker: is not handled",
		"library://a/b/c:1":                                     "library: is not handled",
		"shub://a/b":                                            "shub: is not handled",
		"oras://ghcr.io/a/b:1":                                  "oras: is not handled",
		"file:///data/x":                                        "file: is not handled",
		"https://host/x":                                        "https: is not handled",
		"./x.sif":                                               "give the absolute path of the SIF",
		"x.sif":                                                 "give the absolute path of the SIF",
		"/data/sandbox":                                         "has to be a SIF",
	} {
		_, err := source.ParseReference(in)
		imagetest.WantError(t, err, false, want)
	}
}

func FuzzParseReference(f *testing.F) {
	f.Add("debian:12")
	f.Add("docker-archive:/data/x.tar:debian:12")
	f.Add("oci:/data/x:v1")
	f.Add("/data/x.sif")
	f.Add("docker-archive:/data/x.tar:a@sha256:" + strings.Repeat("0a", 32))
	f.Add("127.0.0.1:5000/a/b@sha256:" + strings.Repeat("0", 64))
	f.Fuzz(func(t *testing.T, in string) {
		ref, err := source.ParseReference(in)
		if err != nil {
			return
		}
		again, err := source.ParseReference(ref.Full())
		if err != nil || again.Full() != ref.Full() || again.Kind() != ref.Kind() || again.Path() != ref.Path() {
			t.Errorf("%q reads as %q, and that as %q (%v)", in, ref.Full(), again.Full(), err)
		}
	})
}
