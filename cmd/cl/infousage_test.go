package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestUsageIsSaidAndDrawn(t *testing.T) {
	t.Parallel()
	one, two := 1.0, 2.0
	u := codalab.Usage{
		SectionSeconds: 60, Limits: codalab.UsageLimits{CPUs: 4},
		Points: []codalab.UsagePoint{{Time: 0, Seconds: 60, CPUs: &one}, {Time: 60, Seconds: 60, CPUs: &two}}, Whole: codalab.UsagePoint{Seconds: 120, CPUs: &one},
	}
	for want, usage := range map[string]codalab.Usage{
		"CPUs: 1.0 of 4 on average.\n\nCPUs over minutes": u, "Nothing is measured: ": {},
	} {
		var out bytes.Buffer
		c := &cli{Process: program.Process{Stdout: &out, Getenv: func(string) string { return "" }}}
		if err := c.drawUsage(usage); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%q, %v", out.String(), err)
		}
	}
}

func TestWhatIsPrintedAloneExcludesTheRest(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]infoOptions{
		"UsageError: --history and --usage are each printed alone; choose one":   {history: true, usage: true},
		"UsageError: --usage is printed alone: leave out -f, -r, -v and --watch": {usage: true, watch: true},
	} {
		if _, err := o.alone(&cli{}); err == nil || err.Error() != want {
			t.Errorf("%v", err)
		}
	}
}
