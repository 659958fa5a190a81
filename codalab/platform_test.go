package codalab_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

func digests(kind, digit string) string { return kind + strings.Repeat(digit, 64) }

func TestPlatformOfAHostileWorkerIsBounded(t *testing.T) {
	t.Parallel()
	var p codalab.Platform
	long := strings.Repeat("€\x1b[2J\n\u202e", 1<<16)
	p.Site, p.GPUDriver = long, "570\n"
	for range 10_000 {
		p.GPUs, p.Software = append(p.GPUs, long), append(p.Software, codalab.Software{Name: long, Version: long})
		p.Inputs = append(p.Inputs, codalab.InputDigest{ChildPath: "in", Digest: digests(codalab.FileDigest, "a")})
	}
	got := p.Bounded(termtext.OneLine)
	text, err := json.Marshal(got)
	if err != nil || len(text) > 32<<10 {
		t.Errorf("%v, %d bytes", err, len(text))
	}
	if strings.ContainsAny(string(text), "\x1b\u202e") || got.GPUDriver != "570" || !strings.HasPrefix(got.Site, "€") {
		t.Errorf("%.300s", text)
	}
	if diff := cmp.Diff(got, got.Bounded(termtext.OneLine)); diff != "" {
		t.Errorf("bounded twice (-once +twice):\n%s", diff)
	}
}

func TestDigestsOfAnotherFormAreLeftOut(t *testing.T) {
	t.Parallel()
	good := []codalab.InputDigest{{ChildPath: "a", Digest: digests(codalab.FileDigest, "a")}, {Digest: digests(codalab.TreeDigest, "0")}}
	p := codalab.Platform{Inputs: []codalab.InputDigest{
		good[0],
		{ChildPath: "b", Digest: "md5:00"},
		{ChildPath: "b", Digest: digests(codalab.FileDigest, "g")},
		{ChildPath: "b", Digest: codalab.FileDigest + "aa"},
		{ChildPath: "b\n", Digest: good[0].Digest},
		{ChildPath: strings.Repeat("b", 1000), Digest: good[0].Digest},
		good[1],
	}}
	if diff := cmp.Diff(good, p.Bounded(termtext.OneLine).Inputs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFactsOfAPlatformAreForPeople(t *testing.T) {
	t.Parallel()
	p := &codalab.Platform{
		Site: "c", GPUs: []string{"A", "B", "A", ""}, GPUDriver: "570.1",
		Software: []codalab.Software{{Name: "Slurm", Version: "24.11"}, {Name: "docker"}},
	}
	want := []codalab.Fact{{"site", "c"}, {"gpus", "2 × A, 1 × B, 1 × of unknown model"}, {"gpu_driver", "570.1"}, {"Slurm", "24.11"}, {"docker", "of unknown version"}}
	if diff := cmp.Diff(want, p.Facts()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var none *codalab.Platform
	if none.Facts() != nil || none.Fact("site") != "" || !(codalab.Platform{}).IsZero() || p.IsZero() {
		t.Error("nothing is something")
	}
	if diff := cmp.Diff([]string{"site", "gpus"}, codalab.PlatformFacts(nil, &codalab.Platform{Site: "c"}, &codalab.Platform{GPUs: []string{"A"}})); diff != "" {
		t.Error(diff)
	}
}
