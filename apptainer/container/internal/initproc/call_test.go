package initproc

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Any call may start a process that stays, such as an engine's daemon or one that holds a user's
// namespaces open.
func TestCallDoesNotWaitForWhatAProgramLeavesRunning(t *testing.T) {
	t.Parallel()
	output, err := Call(t.Context(), []string{"/bin/sh", "-c", "(i=0; while test $i -lt 300; do sleep 0.1; i=$((i+1)); done; echo late) & echo $!; echo done"}, []string{"PATH=/usr/bin:/bin"})
	number, _ := strings.CutSuffix(output, "\ndone")
	pid, numErr := strconv.Atoi(number)
	if err != nil || numErr != nil {
		t.Fatalf("%q, %v", output, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("it waited for what was left: %v", err)
	}
}
