package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// EnterCommand is the hidden argument by which the caller's program becomes
// the first process inside a container that another program has set up: a
// program that runs containers calls [Enter] when its first argument is this
// one. It has to be linked statically, since it runs in any image.
const EnterCommand = "container-enter"

// Where a container that another program sets up shows this program, and the
// file that it reports in.
const (
	enterProgram = "/.container/init"
	enterReport  = "/.container/report"
)

// enterSpec is what Enter is told on its standard input. A second line tells
// it to stop, and the end of the file that its caller is gone.
type enterSpec struct {
	Args         []string
	ShellCommand string
	Env          []string
	Dir          string
	Grace        time.Duration
	// Give names directories inside, whose contents are given to the owner of
	// each; then there is no command.
	Give []string `json:",omitempty"`
}

// entered is what Enter writes in its report: Began, or why not, before the
// command, and Code after it.
type entered struct {
	Began   bool   `json:",omitempty"`
	Code    *int   `json:",omitempty"`
	Error   string `json:",omitempty"`
	NoShell bool   `json:",omitempty"`
}

// Enter is the first process of a container that Apptainer or an engine has
// set up, and makes it the same in all of them: the environment is the one
// that was asked for, whatever its values; TERM reaches every process; a
// program that cannot be run ends with 126 or 127; and with the caller ends
// the container. It returns the exit status for the program to end with.
func Enter() int {
	keepDescriptors()
	report, err := os.OpenFile(enterReport, os.O_WRONLY|os.O_APPEND|syscall.O_CLOEXEC, 0)
	control := json.NewDecoder(os.Stdin)
	var spec enterSpec
	if os.Getpid() != 1 || err != nil || control.Decode(&spec) != nil {
		fmt.Fprintln(os.Stderr, EnterCommand+" is not for people: it is started in every container of Apptainer's or an engine's")
		return enterMisused
	}
	e := &entrance{enterSpec: spec, report: json.NewEncoder(report)}
	handleSignals()
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	syscall.Umask(0o022)
	argv, err := e.prepare()
	if err != nil {
		_ = e.report.Encode(entered{Error: err.Error(), NoShell: errors.Is(err, ErrNoShell)})
		return 1
	}
	_ = e.report.Encode(entered{Began: true})
	go func() {
		<-told
		e.stop()
	}()
	go e.listen(control)
	code := 0
	if len(e.Give) == 0 {
		code = e.run(argv)
	} else if err := give(e.Give); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	_ = e.report.Encode(entered{Code: &code})
	return code
}

// enterMisused is the exit status of Enter when nobody tells it what to do.
const enterMisused = 2

// entrance is the work of Enter.
type entrance struct {
	enterSpec

	report  *json.Encoder
	stopped atomic.Bool
}

// prepare enters the working directory and finds what to run. A name without
// a slash is looked up in the PATH of the container's environment.
func (e *entrance) prepare() (argv []string, err error) {
	if err := os.MkdirAll(e.Dir, 0o755); err != nil { //nolint:gosec // as Docker makes it
		return nil, fmt.Errorf("working directory: %w", err)
	}
	if err := os.Chdir(e.Dir); err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	if len(e.Args) > 0 || len(e.Give) > 0 {
		return e.Args, nil
	}
	for _, sh := range shells() {
		if runnable(sh) == nil {
			return []string{sh, "-c", e.ShellCommand}, nil
		}
	}
	return nil, ErrNoShell
}

// find finds a program as execvp(3) does.
func (e *entrance) find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, runnable(name)
	}
	search := ""
	for _, assignment := range e.Env {
		if value, ok := strings.CutPrefix(assignment, "PATH="); ok {
			search = value
		}
	}
	err := error(fs.ErrNotExist)
	for _, dir := range filepath.SplitList(search) {
		file := path.Join("/", dir, name)
		if dir == "" || !path.IsAbs(dir) {
			file = path.Join(e.Dir, dir, name)
		}
		fault := runnable(file)
		if fault == nil {
			return file, nil
		}
		if errors.Is(fault, fs.ErrPermission) {
			err = fault
		}
	}
	return "", err
}

// runnable says why a file cannot be run.
func runnable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fs.ErrPermission
	}
	return nil
}

// run runs the command in a session of its own and gives its exit status as a
// shell does. What the command leaves behind ends with this process.
func (e *entrance) run(argv []string) int {
	program, err := e.find(argv[0])
	var pid int
	if err == nil {
		pid, err = e.start(program, argv)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", argv[0], unwrapPath(err))
		if errors.Is(err, fs.ErrNotExist) {
			return 127
		}
		return 126
	}
	for {
		var status syscall.WaitStatus
		dead, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 128 + int(syscall.SIGKILL) // not to be met: the command is a child of ours
		case dead == pid && status.Signaled():
			return 128 + int(status.Signal())
		case dead == pid:
			return status.ExitStatus()
		}
	}
}

func (e *entrance) start(program string, argv []string) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = null.Close() }()
	// What is a thread's own the command inherits from this one.
	runtime.LockOSThread()
	if err := dropCapabilities(); err != nil {
		return 0, err
	}
	return syscall.ForkExec(program, argv, &syscall.ProcAttr{ //nolint:gosec // to run what it is told is what a container is for
		Env:   e.Env,
		Files: []uintptr{null.Fd(), 1, 2},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// give gives what is in directories to their owner.
func give(dirs []string) error {
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("give: %w", err)
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("give %s: who owns it is unknown", dir)
		}
		err = filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
			if chownErr := os.Lchown(name, int(owner.Uid), int(owner.Gid)); !errors.Is(chownErr, fs.ErrPermission) { //nolint:gosec // nothing else runs in this container
				err = errors.Join(err, chownErr)
			} // else it is somebody's whom this container does not know, and was there before
			return err
		})
		if err != nil {
			return fmt.Errorf("give: %w", err)
		}
	}
	return nil
}

// unwrapPath leaves out the path of an error that is said of it anyway.
func unwrapPath(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// listen waits for the word to stop. When the caller is gone, so is the
// container: with its first process the kernel ends all of them.
func (e *entrance) listen(control *json.Decoder) {
	var word struct{}
	if control.Decode(&word) == nil {
		e.stop()
		_ = control.Decode(&word)
	}
	os.Exit(1) //nolint:forbidigo // this is the end of a process of ours, whose caller is gone
}

// stop sends every process but this one TERM and, after the grace, KILL.
func (e *entrance) stop() {
	if e.stopped.Swap(true) {
		return
	}
	_ = syscall.Kill(-1, syscall.SIGTERM)
	time.AfterFunc(e.Grace, func() { _ = syscall.Kill(-1, syscall.SIGKILL) })
}

// reportBytes is more than Enter writes before the command, or after it.
const reportBytes = 16 << 10

// readEntered reads a report, both ends of it. The command might have written
// to it too, and at length: what cannot be read is left out.
func readEntered(file string) (said entered) {
	f, err := os.Open(file)
	if err != nil {
		return said
	}
	defer func() { _ = f.Close() }()
	size := int64(0)
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	first := io.NewSectionReader(f, 0, reportBytes)
	last := io.NewSectionReader(f, max(reportBytes, size-reportBytes), reportBytes)
	text, err := io.ReadAll(io.MultiReader(first, strings.NewReader("\n"), last))
	if err != nil {
		return said
	}
	for line := range bytes.Lines(text) {
		_ = json.Unmarshal(line, &said)
	}
	return said
}

// makeReport makes the file that Enter reports in.
func makeReport(dir string) (string, error) {
	file := filepath.Join(dir, "report")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("make its report: %w", err)
	}
	return file, f.Close()
}
