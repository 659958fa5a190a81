package main

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// Each run starts the program twice, and its initialisers took more time than the rest of a start: those of heavy modules, and
// regular expressions, for which there is package lazyregexp.
func TestProgramOfNodesComputesNothingBeforeItsStart(t *testing.T) {
	t.Parallel()
	heavy := []string{
		"k8s.io/", "sigs.k8s.io/", "modernc.org/", "github.com/distribution/", "github.com/lib/pq", "github.com/klauspost/", "net/http",
		"github.com/cl-slurm/cl-slurm/bridge", "github.com/cl-slurm/cl-slurm/sbatch", "github.com/cl-slurm/cl-slurm/codalab/client",
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = []string{"GODEBUG=inittrace=1"}
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &trace)
	}
	const most = 4 << 10
	packages := 0
	for line := range strings.Lines(trace.String()) { // init net @0.5 ms, 0.02 ms clock, 1768 bytes, 19 allocs
		fields := strings.Fields(line)
		if len(fields) != 11 {
			continue
		}
		if slices.ContainsFunc(heavy, func(path string) bool { return strings.HasPrefix(fields[1], path) }) {
			t.Errorf("it imports %s", fields[1])
		}
		if !strings.HasPrefix(fields[1], "github.com/cl-slurm/") {
			continue
		}
		packages++
		if bytes, err := strconv.Atoi(fields[7]); err != nil || bytes > most {
			t.Errorf("its variables need more than %d bytes: %s", most, line)
		}
	}
	if packages == 0 {
		t.Errorf("the trace of its packages is %s", &trace)
	}
}

func TestProgramHasTheCommandsOfNodes(t *testing.T) {
	t.Parallel()
	for args, code := range map[string]int{"exec --help": 0, "probe --help": 0, "--version": 0, "exec": program.ExitUsage, "--server http://x": program.ExitUsage} {
		var out bytes.Buffer
		err := run(t.Context(), program.Process{
			Args: strings.Fields(args), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Now: time.Now,
			Getenv: func(string) string { return "" },
		})
		if got := program.Code(t.Context(), err); got != code {
			t.Errorf("%s: exit code %d, %v; want %d", args, got, err, code)
		}
	}
}
