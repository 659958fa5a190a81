package testsite_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// A site without internet runs images that an operator brought in and SIFs in place, and
// refuses other images with a reason.
func TestSiteWithoutInternetRunsWhatWasBroughtIn(t *testing.T) {
	t.Parallel()
	images := testenv.SharedDir(t)
	s := cold(t, testsite.Options{Config: "[image]\noffline = true\nroots = [\"" + images + "\"]\n"})
	early := run(t, s, "cpu", "true")
	until(t, s, early, "failure_message", `it is not among the kept images for linux/.*: ask its operator for cl-bridge image pull`)
	bridge(t, s, "image", "pull", s.Image)
	bundle := run(t, s, "cpu", "echo kept")
	ready(t, s, bundle)
	name := field(t, s, bundle, "docker_image")
	if repository, _, _ := strings.Cut(s.Image[strings.LastIndex(s.Image, "/"):], ":"); !strings.Contains(name, repository+"@sha256:") {
		t.Errorf("docker_image %q of %s", name, s.Image)
	}
	// The digest of its image can be requested again.
	ready(t, s, run(t, s, "cpu", "true", "--request-docker-image", name))

	var list []struct {
		Path    string   `json:"path"`
		Names   []string `json:"names"`
		Kept    []any    `json:"kept"`
		Bundles []string `json:"bundles"`
	}
	if err := json.Unmarshal([]byte(bridge(t, s, "image", "ls", "--json")), &list); err != nil || len(list) != 1 || len(list[0].Kept) != 1 || len(list[0].Names) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	sif := filepath.Join(images, "lab.sif")
	must(t, s, "cp", list[0].Path, sif)
	bundle = run(t, s, "cpu", "echo in place; ls /", "--request-docker-image", sif)
	ready(t, s, bundle)
	if got := cl(t, s, "cat", bundle+"/stdout"); !strings.HasPrefix(got, "in place\n") {
		t.Errorf("stdout %q", got)
	}
	if got := field(t, s, bundle, "docker_image"); !strings.HasPrefix(got, sif+"@sha256:") {
		t.Errorf("docker_image %q", got)
	}
	outside := run(t, s, "cpu", "true", "--request-docker-image", "/etc/passwd.sif")
	until(t, s, outside, "failure_message", `Image /etc/passwd\.sif: not under a directory that this site takes images from \(`)
}

// A site that spares its login nodes has images converted in jobs.
func TestImageIsConvertedInAJob(t *testing.T) {
	t.Parallel()
	s := cold(t, testsite.Options{Config: "[image]\nqueue = \"cpu\"\n"})
	bundle := run(t, s, "cpu", "echo converted elsewhere")
	ready(t, s, bundle)
	if got := cl(t, s, "cat", bundle+"/stdout"); strings.TrimSpace(got) != "converted elsewhere" {
		t.Errorf("stdout %q", got)
	}
	if jobs := must(t, s, "squeue", "--me", "--noheader", "--states=all", "--format=%j %T"); !strings.Contains(jobs, "cl-image-") {
		t.Errorf("jobs: %s", jobs)
	}
}
