package testsite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// No bridge has to sign in as root: a worker account is enough for all that it does.
func TestBridgeWithAWorkerAccountDoesTheWholeJob(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{WorkerAccount: true})
	input := filepath.Join(s.Dir, "home", "in")
	if err := os.WriteFile(input, []byte("3\n1\n2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	data := cl(t, s, "upload", input)
	first := run(t, s, "cpu", "sort in > sorted; echo told; until test -e go; do sleep 0.1; done", "in:"+data)
	untilPrinted(t, s, first, "told") // the bridge answers while the run goes on
	cl(t, s, "kill", first)
	until(t, s, first, "state", `^killed$`)
	second := run(t, s, "cpu", "cat in/sorted", "in:"+first, "--allow-failed-dependencies")
	ready(t, s, second)
	if got := cl(t, s, "cat", second+"/stdout"); got != "1\n2\n3" {
		t.Errorf("stdout %q", got)
	}
}
