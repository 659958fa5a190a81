package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runApptainer is run for a container that Apptainer sets up. Init keeps
// Apptainer's processes together: it hands the word to stop on, and what is
// left at the end, such as a squashfuse whose Apptainer was killed, ends with
// it.
func (c *container) runApptainer() (code int, err error) {
	if err := os.Chdir(c.Scratch); err != nil {
		return 0, fmt.Errorf("enter its scratch directory: %w", err)
	}
	if c.Apptainer.Plain {
		// Orphans of Apptainer become children of this process.
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	} else {
		err = mountProc()
	}
	if err != nil {
		return 0, err
	}
	if err := c.holdImage(); err != nil {
		return 0, err
	}
	report, err := makeReport(c.Scratch)
	if err != nil {
		return 0, err
	}
	binds, err := c.apptainerBinds()
	if err != nil {
		return 0, err
	}
	since := stderrLen()
	control, err := c.startApptainer(report, binds)
	if err != nil {
		return 0, err
	}
	defer func() { _ = control.Close() }()
	status, killed, err := c.superviseApptainer(control, report)
	if err != nil {
		return 0, err
	}
	if killed {
		return 128 + int(syscall.SIGKILL), nil
	}
	said := readEntered(report)
	if said.Began {
		c.begin()
	}
	return said.outcome(status, "apptainer", func() string { return complaint(since) })
}

// plain says whether init has no namespaces of its own.
func (s initSpec) plain() bool { return s.Apptainer != nil && s.Apptainer.Plain }

// apptainerBinds are the binds as Apptainer is to be told of them.
func (c *container) apptainerBinds() (binds []Bind, err error) {
	for i, b := range c.Binds {
		if b.Exact {
			if b.Source, err = c.pinned(i, b.Source); err != nil {
				return nil, err
			}
		}
		binds = append(binds, b)
	}
	if !slices.ContainsFunc(binds, func(b Bind) bool { return isBelow("/etc/hosts", b.Target) }) {
		file, err := c.makeHosts()
		if err != nil {
			return nil, err
		}
		binds = append(binds, Bind{Source: file, Target: "/etc/hosts"})
	}
	// Apptainer sources the image's scripts before the command, with more
	// capabilities than that has (action_script.sh): it finds none.
	if err := os.Mkdir(scriptsDir, 0o755); err != nil { //nolint:gosec // it is empty, and its parent is 0700
		return nil, fmt.Errorf("make its scratch directory: %w", err)
	}
	binds = append(binds, Bind{Source: filepath.Join(c.Scratch, scriptsDir), Target: "/.singularity.d/env", ReadOnly: true})
	if c.Apptainer.Plain {
		return binds, nil
	}
	for _, dir := range []string{upperDir, shmDir} {
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // upper/ becomes the container's root, and its parent is 0700
			return nil, fmt.Errorf("make its scratch directory: %w", err)
		}
	}
	if err := c.mountShm(); err != nil {
		return nil, err
	}
	return append(binds, Bind{Source: filepath.Join(c.Scratch, shmDir), Target: "/dev/shm"}), nil
}

// scriptsDir, in a container's scratch directory, is empty.
const scriptsDir = "scripts"

// hosts is an /etc/hosts for a container: the host's own where it has the
// host's network.
func hosts(network bool) ([]byte, error) {
	if !network {
		return loopbackHosts()
	}
	text, err := os.ReadFile("/etc/hosts")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("copy /etc/hosts: %w", err)
	}
	return text, nil
}

// makeHosts makes the file that becomes the container's /etc/hosts.
func (c *container) makeHosts() (string, error) {
	text, err := hosts(c.Apptainer.Network)
	if err != nil {
		return "", err
	}
	file := filepath.Join(c.Scratch, "hosts")
	if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // everybody inside reads it
		return "", fmt.Errorf("make the container's hosts file: %w", err)
	}
	return file, nil
}

// pinned is pin where this process has mounts of its own. Where it has none the
// source is looked at now, and Apptainer follows its path a moment later.
func (c *container) pinned(i int, source string) (string, error) {
	if !c.Apptainer.Plain {
		return c.pin(i, source)
	}
	f, err := openExact(source)
	if err != nil {
		return "", err
	}
	return source, f.Close() //nolint:wrapcheck // nothing was done with it
}

// startApptainer starts it and returns what Enter listens to.
func (c *container) startApptainer(report string, binds []Bind) (control *os.File, err error) {
	r, control, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start Apptainer: %w", err)
	}
	defer func() { _ = r.Close() }()
	args := c.Apptainer.args(c.SIF, c.Scratch, report, binds)
	c.program, err = syscall.ForkExec(c.Apptainer.Program, args, &syscall.ProcAttr{ //nolint:gosec // the site's own, by configuration
		Dir:   "/",
		Env:   apptainerEnv(c.Scratch),
		Files: []uintptr{r.Fd(), 1, 2},
	})
	if err != nil {
		_ = control.Close()
		return nil, fmt.Errorf("start %s: %w", c.Apptainer.Program, err)
	}
	go c.reap()
	if err := json.NewEncoder(control).Encode(c.Apptainer.Command); err != nil && !errors.Is(err, unix.EPIPE) {
		_ = control.Close()
		return nil, fmt.Errorf("start Apptainer: %w", err)
	}
	return control, nil
}

// apptainerEnv is the environment of Apptainer itself. What it writes for
// itself goes to dir, and nothing to the user's home.
func apptainerEnv(dir string) []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", "HOME=" + dir,
		"APPTAINER_CONFIGDIR=" + dir, "APPTAINER_TMPDIR=" + dir, "SINGULARITY_TMPDIR=" + dir,
	}
}

// superviseApptainer waits for Apptainer's end, or until it has to be killed.
func (c *container) superviseApptainer(control *os.File, report string) (status syscall.WaitStatus, killed bool, err error) {
	stop := c.stop
	var kill <-chan time.Time
	look := time.NewTicker(reportPause)
	defer look.Stop()
	begun := look.C
	for {
		select {
		case <-begun:
			if readEntered(report).Began {
				begun = nil
				look.Stop()
				c.begin()
			}
		case <-stop:
			stop = nil
			_, _ = control.WriteString("{}\n") // one that is gone needs no word
			timer := time.NewTimer(c.Grace + time.Second)
			defer timer.Stop()
			kill = timer.C
		case <-kill:
			return 0, true, nil
		case d, ok := <-c.deaths:
			if !ok {
				return 0, false, errors.New("apptainer ended unseen")
			}
			if d.pid == c.program {
				return d.status, false, nil
			}
		}
	}
}

// reportPause is the time between two looks at whether Enter has begun the
// command.
const reportPause = 5 * time.Millisecond

// outcome is how a container ended that another program has set up, by what
// Enter reported and how that program ended. complaint is what it said.
func (said entered) outcome(status syscall.WaitStatus, program string, complaint func() string) (code int, err error) {
	switch {
	case said.NoShell:
		return 0, ErrNoShell
	case said.Error != "":
		return 0, errors.New(said.Error)
	case said.Began && said.Code != nil:
		return *said.Code, nil
	case status.Signaled():
		return 0, fmt.Errorf("%s was ended by a signal: %v", program, status.Signal())
	case said.Began:
		return status.ExitStatus(), nil
	}
	words := lastLine(complaint())
	if words == "" {
		words = "exit status " + strconv.Itoa(status.ExitStatus())
	}
	return 0, fmt.Errorf("%s could not set the container up: %s", program, words)
}

// lastLine is the last of what a program said, without the name of the
// message's level that Apptainer and Docker put in front.
func lastLine(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	for _, level := range []string{"FATAL:", "ERROR:", "Error:", "docker:"} {
		last = strings.TrimSpace(strings.TrimPrefix(last, level))
	}
	return last
}

// sessionEnd is how long what Apptainer has started may take to end by itself
// once it has ended.
const sessionEnd = 20 * time.Millisecond

// endSession is end for an init without a pid namespace. All that is left of
// Apptainer are its children, which it is the subreaper of, and as a rule there
// are none.
func (c *container) endSession() {
	kill := time.NewTimer(sessionEnd)
	defer kill.Stop()
	for {
		select {
		case _, ok := <-c.deaths:
			if !ok {
				return
			}
		case <-kill.C:
			killSession(os.Getpid())
		}
	}
}

// sessionProcesses lists the processes of a session but its leader.
func sessionProcesses(session int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == session {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		// proc_pid_stat(5): the name may hold anything; then state, ppid, pgrp, session.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 3 && fields[0] != "Z" && fields[3] == strconv.Itoa(session) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killSession kills the processes of a session but its leader, and those that
// they start meanwhile.
func killSession(session int) {
	for range 100 {
		pids := sessionProcesses(session)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
