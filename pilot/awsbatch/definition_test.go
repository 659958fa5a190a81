package awsbatch_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
)

var update = flag.Bool("update", false, "write the golden files")

func TestDefinitionIsRegisteredOncePerContent(t *testing.T) {
	t.Parallel()
	c, small := openCloud(t)
	c.Page = 1 // so that revisions are found on later pages
	large := open(c.URL, "large")
	large.Definition.CPUs, large.Definition.GPUs = 8, 1
	var of []string
	for range 2 { // managers, and their next instances
		for _, b := range []pilot.Backend{small, large, open(c.URL, "codalab")} {
			p, err := b.Start(t.Context(), b.NewName(), token)
			testenv.Must(t, err)
			of = append(of, c.Named(p.Name)[0].Definition)
		}
	}
	if c.Definitions() != 2 || of[0] == of[1] {
		t.Errorf("there are %d revisions, and the jobs use %q", c.Definitions(), of)
	}
	if diff := cmp.Diff([]string{of[0], of[1], of[0], of[0], of[1], of[0]}, of); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestRevisionThatSomebodyRemovesIsRegisteredAgain(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	start(t, b)
	c.Deregister()
	if _, err := b.Start(t.Context(), b.NewName(), token); err == nil || kindOf(err).Uncertain {
		t.Errorf("the error is %v", err)
	}
	start(t, b)
	if n := c.Definitions(); n != 2 {
		t.Errorf("there are %d revisions", n)
	}
}

// TestPreviewIsWhatIsSent is the golden file of --dry-run.
func TestPreviewIsWhatIsSent(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	b.Definition.GPUs, b.Definition.HostDir = 1, "/scratch"
	got, err := b.Preview("cl_worker_codalab_0123456789abcdef0123456789abcdef")
	testenv.Must(t, err)
	file := filepath.Join("testdata", "preview.txt")
	if *update {
		testenv.Must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	testenv.Must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if n := c.Requests(""); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}
