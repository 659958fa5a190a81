package codalab_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// A shell takes the longest command, and the kernel refuses one that is a byte longer.
func TestLongestCommandIsThatOfTheKernel(t *testing.T) {
	t.Parallel()
	longest := "true " + strings.Repeat("x", codalab.MaxCommand-len("true "))
	for _, command := range []string{longest, longest + "x"} {
		ran := exec.CommandContext(t.Context(), "/bin/sh", "-c", command).Run()
		if err := codalab.CheckCommand(command); (err == nil) != (ran == nil) {
			t.Errorf("%d bytes: %v, and the kernel says %v", len(command), err, ran)
		}
	}
	if codalab.CheckCommand("true\x00") == nil {
		t.Error("a zero byte is accepted")
	}
}
