package testsite_test

import (
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// All GPUs are taken. The researcher reads why the run waits and until when, in cl info and from cl wait on a terminal.
func TestRunThatWaitsForItsTurnShowsWhenItStarts(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Config: often("")})
	var holders []string
	for range 2 {
		holder := run(t, s, "gpu", "while [ ! -e go ]; do sleep 0.2; done", "--request-gpus", "4", "--request-time", "10m")
		begun(t, s, holder)
		holders = append(holders, holder)
	}
	waits := run(t, s, "gpu", "echo done", "--request-gpus", "1")
	const sentence = `Slurm job \d+ waits \((Resources|Priority)\): .* (No job is|\d+ jobs? (is|are)) ahead of it in partition gpu\. Slurm expects to start it at 20\d\d-\d\d-\d\d \d\d:\d\d [A-Z0-9+-]+\.`
	until(t, s, waits, "run_status", "^"+sentence+"$")

	seen, waiting := &testenv.Output{}, sync.WaitGroup{}
	waiting.Go(func() {
		if err := s.Stream(t.Context(), seen, "script", "-qefc", testsite.Base+"/bin/cl wait "+waits, "/dev/null"); err != nil {
			t.Errorf("cl wait: %v", err)
		}
	})
	testenv.Await(t, "cl wait shows the sentence", func() bool {
		return regexp.MustCompile(`(?m)^preparing: ` + sentence + `\r$`).MatchString(seen.String())
	}, seen)
	for _, holder := range holders {
		testenv.Must(t, s.GoOn(t.Context(), holder))
	}
	waiting.Wait()
	if !strings.HasSuffix(seen.String(), waits+"\r\n") {
		t.Errorf("cl wait ends with %q", seen)
	}
}
