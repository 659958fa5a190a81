package slurmtest_test

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// unmodelled are the recorded refusals that a Controller has no part in.
var unmodelled = regexp.MustCompile(`--threads-per-core|--reservation=clrec|--dependency|--clusters|clrec-(group|qos)|^#|4\.2M`)

// What sbatch wrote on a real cluster, when it refused, is what it writes here.
func TestRecordedRefusalsAreRepeatedToTheLetter(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, slurmtest.NewSite())
	k.Do(func(now time.Time, c *slurmtest.Controller) {
		c.SetPartition(now, slurmtest.Partition{Name: "clrec-drain", Nodes: []string{"n1"}, State: "DRAIN"})
		c.SetPartition(now, slurmtest.Partition{Name: "clrec-inactive", Nodes: []string{"n1"}, State: "INACTIVE"})
	})
	for range 2 {
		if _, err := k.Client().Submit(t.Context(), request("a", "--hold", "--qos=limited")); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile("../testdata/22.05.8/sbatch-refused.txt")
	if err != nil {
		t.Fatal(err)
	}
	repeated := 0
	for block := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n\n") {
		head, rest, _ := strings.Cut(block, "\n")
		options := strings.TrimPrefix(head, "$ sbatch ")
		if unmodelled.MatchString(options) {
			continue
		}
		repeated++
		stderr, exit, _ := strings.Cut("\n"+rest, "\nrc=")
		stdin, args := typed(options)
		_, err := k.Run(t.Context(), command.Command{Args: append([]string{"sbatch"}, args...), Stdin: strings.NewReader(stdin), Dir: "/tmp"})
		var failed *command.Error
		if !errors.As(err, &failed) {
			t.Errorf("%s: %v: want it refused", head, err)
			continue
		}
		if d := cmp.Diff(strings.TrimSpace(stderr), failed.Stderr); d != "" || strconv.Itoa(failed.ExitCode) != exit {
			t.Errorf("%s: exit status %d, recorded %s (-recorded +got):\n%s", head, failed.ExitCode, exit, d)
		}
	}
	if repeated < 25 {
		t.Errorf("%d recorded refusals were repeated", repeated)
	}
}

// typed is what the shell made of a recorded command line: the standard input,
// and the arguments.
func typed(options string) (stdin string, args []string) {
	switch options {
	case "< /dev/null":
		return "", nil
	case `<<< " "`:
		return " \n", nil
	case `<<< "echo"`:
		return "echo\n", nil
	case `<<< $'#!/bin/sh\r'`:
		return "#!/bin/sh\r\n", nil
	}
	options, _, _ = strings.Cut(options, " #")
	options = strings.ReplaceAll(options, "$(printf %01500d 0)", strings.Repeat("0", 1500))
	return "#!/bin/sh\n", strings.Fields(options)
}
