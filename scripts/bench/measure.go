package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is what a command took, with all the processes that it started and
// waited for.
type usage struct {
	wall, cpu float64 // seconds; cpu is of user and system
	// memory is the most bytes that its processes had resident at a time, and
	// disk the most that was used on its temporary file system. What processes
	// share counts once for each.
	memory, disk int64
}

// measure runs a command. What it writes below temp, a file system of its own,
// is watched.
func measure(cmd *exec.Cmd, temp string) (usage, error) {
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	before, err := used(temp)
	if err != nil {
		return usage{}, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return usage{}, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	var u usage
	ended := make(chan struct{})
	watched := make(chan error, 1)
	go func() { watched <- u.watch(cmd.Process.Pid, temp, before, ended) }()
	err = cmd.Wait()
	u.wall = time.Since(start).Seconds()
	close(ended)
	if watchErr := <-watched; err == nil {
		err = watchErr
	}
	if err != nil {
		return usage{}, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(output.Bytes()))
	}
	u.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return u, nil
}

// watch keeps the peaks until ended is closed.
func (u *usage) watch(pid int, temp string, before int64, ended <-chan struct{}) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return nil
		case <-tick.C:
		}
		now, err := used(temp)
		if err != nil {
			return err
		}
		u.disk = max(u.disk, now-before)
		u.memory = max(u.memory, resident(pid))
	}
}

// used is how many bytes of a file system are taken.
func used(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("measure %s: %w", dir, err)
	}
	return int64(s.Blocks-s.Bfree) * s.Bsize, nil
}

// resident is what a process and its descendants have in memory now. One that
// has ended meanwhile has nothing.
func resident(pid int) int64 {
	proc := "/proc/" + strconv.Itoa(pid)
	var bytes int64
	if statm, err := os.ReadFile(proc + "/statm"); err == nil {
		if fields := strings.Fields(string(statm)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			bytes = pages * int64(os.Getpagesize())
		}
	}
	lists, _ := filepath.Glob(proc + "/task/*/children")
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			if id, err := strconv.Atoi(child); err == nil {
				bytes += resident(id)
			}
		}
	}
	return bytes
}
