package server

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

func TestFullDiskIsSaidToBeFull(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		cause := fmt.Errorf("store file: %w", &fs.PathError{Op: "write", Path: "/data/secret", Err: errno})
		if status, message := uploadError(cause); status != 500 || message != "the server's disk is full" {
			t.Errorf("%v: %d %s", errno, status, message)
		}
	}
}
