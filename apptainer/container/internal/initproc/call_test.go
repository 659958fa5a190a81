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
	said, err := Call(t.Context(), []string{"/bin/sh", "-c", "(i=0; while test $i -lt 300; do sleep 0.1; i=$((i+1)); done; echo late) & echo $!; echo done"}, []string{"PATH=/usr/bin:/bin"})
	number, _ := strings.CutSuffix(said, "\ndone")
	pid, numErr := strconv.Atoi(number)
	if err != nil || numErr != nil {
		t.Fatalf("%q, %v", said, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("it waited for what was left: %v", err)
	}
}
