package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// usage is the resource use of a command and of the processes that it started and waited
// for.
type usage struct {
	wall, cpu float64 // seconds; cpu is of user and system
	// memory is the largest resident memory of its processes in MB; shared pages count
	// once for each process. disk is the largest use of its temporary file system in MB.
	memory, disk float64
}

// measure runs a command that writes temporary files to temp, a file system of its
// own. Its output is part of the error if it fails, except a standard output that is
// already set.
func measure(cmd *exec.Cmd, temp string) usage {
	var output bytes.Buffer
	cmd.Stderr = &output
	if cmd.Stdout == nil {
		cmd.Stdout = &output
	}
	before := usedMB(temp)
	start := time.Now()
	check(cmd.Start())
	var u usage
	var watching sync.WaitGroup
	ended := make(chan struct{})
	watching.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				u.disk = max(u.disk, usedMB(temp)-before)
				u.memory = max(u.memory, residentMB(cmd.Process.Pid))
			}
		}
	})
	err := cmd.Wait()
	u.wall = time.Since(start).Seconds()
	close(ended)
	watching.Wait()
	if err != nil {
		check(fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(output.Bytes())))
	}
	u.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return u
}

// usedMB returns the used space of a file system; 0 if it cannot be known.
func usedMB(dir string) float64 {
	var s syscall.Statfs_t
	_ = syscall.Statfs(dir, &s)
	return float64(int64(s.Blocks-s.Bfree)*s.Bsize) / 1e6
}

// residentMB is the memory of a process and its descendants. A process that has
// ended has none.
func residentMB(pid int) float64 {
	proc := "/proc/" + strconv.Itoa(pid)
	total := 0.0
	if statm, err := os.ReadFile(proc + "/statm"); err == nil {
		if fields := strings.Fields(string(statm)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			total = float64(pages*int64(os.Getpagesize())) / 1e6
		}
	}
	lists, _ := filepath.Glob(proc + "/task/*/children")
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			if id, err := strconv.Atoi(child); err == nil {
				total += residentMB(id)
			}
		}
	}
	return total
}
