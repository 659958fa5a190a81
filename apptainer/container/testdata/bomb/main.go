// Command bomb starts a number of processes, each of which becomes another user, until the kernel refuses one. It
// prints the number of those that began. With the path of a file it then waits for that file; they all end with it.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	most, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	began := 0
	for began < most {
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			fmt.Printf("refused: %v\n", errno)
			break
		}
		if pid == 0 { // it must call nothing of Go's runtime
			id := uintptr(began%5) * 1000
			syscall.RawSyscall(syscall.SYS_SETRESUID, id, id, id)
			for {
				syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
		began++
	}
	fmt.Printf("began: %d\n", began)
	for len(os.Args) > 2 {
		if _, err := os.Stat(os.Args[2]); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
}
