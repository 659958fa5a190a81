package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

// part is a part of this program, or another program, that runs as a process of its own.
type part struct {
	cmd *exec.Cmd
	pid int
	// said is the first line of its output.
	said string
}

// startPart starts a part, and waits until it has printed a line.
func startPart(ctx context.Context, args ...string) part { return startPartAs(ctx, nil, args...) }

// startPartAs starts a part as another user; nil for this one.
func startPartAs(ctx context.Context, as *syscall.Credential, args ...string) part {
	cmd := exec.CommandContext(ctx, must(os.Executable()), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	cmd.Stderr = os.Stderr
	out := must(cmd.StdoutPipe())
	check(cmd.Start())
	said := bufio.NewScanner(out)
	if !said.Scan() {
		check(errors.Join(fmt.Errorf("%s ended early", args[0]), cmd.Wait()))
	}
	return part{cmd, cmd.Process.Pid, said.Text()}
}

func (p part) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	check(p.cmd.Wait())
}

func (p part) proc(name string) string {
	return string(must(os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), name))))
}

// cpu returns its processor time in seconds (proc(5), /proc/pid/stat).
func (p part) cpu() float64 {
	line := must(procstat.Read(p.pid))
	return (line.User + line.System).Seconds()
}

// memory returns its largest resident memory since its start in MB (proc(5), /proc/pid/status).
func (p part) memory() float64 {
	for line := range strings.Lines(p.proc("status")) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return must(strconv.ParseFloat(strings.Fields(value)[0], 64)) * 1024 / 1e6
		}
	}
	return 0
}

// treeCPU returns the processor time in seconds of a process, its descendants and the children that it
// has waited for (proc(5), /proc/pid/stat).
func treeCPU(pid int) float64 {
	line, err := procstat.Read(pid)
	if err != nil {
		return 0 // it has ended, and its time counts for its parent
	}
	total := (line.User + line.System + line.WaitedUser + line.WaitedSystem).Seconds()
	lists, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/children"))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			total += treeCPU(must(strconv.Atoi(child)))
		}
	}
	return total
}
