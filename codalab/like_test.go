package codalab_test

import (
	"slices"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestRunLikeAnotherHasItsImageAndNotItsSweep(t *testing.T) {
	t.Parallel()
	sweep := codalab.NewUUID()
	old := codalab.Bundle{Type: codalab.TypeRun, Metadata: codalab.Metadata{
		"name": "a", "request_cpus": 2, "docker_image": "python@sha256:1", "exitcode": 1,
		"tags": append([]string{"mine", codalab.CopyTag + sweep}, codalab.SweepTags(sweep, []codalab.Setting{{Name: "lr", Value: "0.1"}})...),
	}}
	m := old.MetadataLike(codalab.Metadata{"name": "b"})
	if m.String("name") != "b" || m.Int("request_cpus") != 2 || m.String("request_docker_image") != "python@sha256:1" || m.Has("exitcode") || m.Has("docker_image") {
		t.Errorf("%v", m)
	}
	if tags := m.Strings("tags"); !slices.Equal(tags, []string{"mine"}) {
		t.Errorf("it has the tags %q", tags)
	}
	if old.Metadata.Sweep() != sweep || !old.Metadata.Has("exitcode") {
		t.Errorf("the old run has become %v", old.Metadata)
	}
}

func TestNameOfAValueTellsWhichIsBest(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{"/stats.json:acc": false, "/stats.json:test/loss": true, "/loss.json:acc": false, "/log.csv:-1:err": true, "/a": false} {
		if got := codalab.LowestIsBest(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
