//go:build !cgo

package firstproc

import (
	"fmt"
	"os"
	"runtime/metrics"
	"strings"

	"golang.org/x/sys/unix"
)

// keepsBack tells whether KeepBack has an effect.
const keepsBack = true

// KeepBack keeps the memory that Go's runtime manages, such as the heap, from the processes that fork makes, except for the pages that
// those need: so the first process of a container does not have it, and the kernel does not copy its tables. What the heap grows by
// later is not kept back, until another call. mapped is what the last call has returned, 0 for the first; KeepBack does nothing if the
// runtime has not got more memory since. No Setup may hold memory during the call.
//
// The standard library starts a program by vfork(2), with which it shares all memory until the program is executed; but by fork(2) if
// the program gets a new user namespace (syscall.CLONE_NEWUSER): that crashes after KeepBack.
func KeepBack(mapped uint64) (now uint64, err error) {
	total := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(total)
	if now = total[0].Value.Uint64(); now == mapped {
		return now, nil
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, fmt.Errorf("find its memory: %w", err)
	}
	var program uintptr // the end of the program's initialized variables, where its zeroed ones begin: no part of the heap
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		var from, to uintptr
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil || len(fields) < 5 {
			return 0, fmt.Errorf("find its memory: %q", line)
		}
		switch private := fields[1][3] == 'p'; {
		case !private:
		case fields[4] != "0": // a file
			program = to
		// proc_pid_maps(5): Go names its own mappings where the kernel takes names (PR_SET_VMA).
		case from != program && (len(fields) == 5 || strings.HasPrefix(fields[5], "[anon:")):
			if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTFORK); errno != 0 {
				return 0, os.NewSyscallError("madvise", errno)
			}
		}
	}
	return now, nil
}
