package nodeimages

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

func TestImagesOfRegistriesAreNamedToTheNodes(t *testing.T) {
	t.Parallel()
	for reference, want := range map[string]string{
		"python:3": "python:3", "docker://lab.example/a/b": "lab.example/a/b", "codalab/default-cpu:latest": "codalab/default-cpu:latest",
		"/home/ann/image.sif": "!the nodes of Kubernetes pull images of registries only", "": "!none was asked for", "Upper/Case": "!",
	} {
		in, err := Images{}.Stage(t.Context(), codalab.RunBundle{}, reference, "", "", &transfer.Item{})
		words, refused := strings.CutPrefix(want, "!")
		switch {
		case refused && (err == nil || !strings.Contains(err.Error(), words)):
			t.Errorf("%q: %+v, %v", reference, in, err)
		case !refused && (err != nil || in.PinnedReference != want):
			t.Errorf("%q: %+v, %v", reference, in, err)
		}
	}
}
