package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Init is the first process of a container: it reads what to do from the
// descriptor that Builtin.Run gave it, does it, and returns the exit status
// for the program to end with. Programs call it before anything else, when
// their first argument is InitCommand.
func Init() int {
	keepDescriptors()
	control := json.NewDecoder(os.NewFile(controlFD, "control"))
	report := json.NewEncoder(os.NewFile(reportFD, "report"))
	var spec initSpec
	if control.Decode(&spec) != nil || (os.Getpid() != 1 && !spec.plain()) {
		fmt.Fprintln(os.Stderr, InitCommand+" is not for people: it is started with every container")
		return 2
	}
	handleSignals()
	// The host's keys are not the container's. Threads have keyrings of their
	// own: what this one starts inherits the new one.
	runtime.LockOSThread()
	_, _ = unix.KeyctlJoinSessionKeyring("") // a kernel without keys has none to hide
	syscall.Umask(0o022)
	c := &container{initSpec: spec, report: report, deaths: make(chan death), stop: make(chan struct{})}
	go c.listen(control)
	run := c.run
	switch {
	case spec.Trial:
		run = c.try
	case spec.Serve:
		run = c.serveImage
	case spec.Apptainer != nil:
		run = c.runApptainer
	}
	code, err := run()
	c.end()
	var host *HostError
	answer := initReport{Code: code, Note: c.note(), NoShell: errors.Is(err, ErrNoShell), Host: errors.As(err, &host)}
	if err != nil {
		answer.Error = err.Error()
	}
	if report.Encode(answer) != nil {
		return 1
	}
	return 0
}

// handleSignals keeps a signal to the whole job from ending this process before
// the command's end is known. Unlike ignored signals, handled ones are the
// default again in the programs that it starts.
func handleSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGALRM, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGXCPU, syscall.SIGTTIN, syscall.SIGTTOU)
}

// keepDescriptors keeps from the container every descriptor but the standard
// ones, also such as the caller was started with.
func keepDescriptors() {
	syscall.CloseOnExec(controlFD)
	syscall.CloseOnExec(reportFD)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// container is the work of init.
type container struct {
	initSpec

	report   *json.Encoder
	began    bool          // the command
	labelled bool          // the image, with attributes that no overlay copies
	deaths   chan death    // of children; closed when there are none
	stop     chan struct{} // closed when the caller says so

	imageLost  chan struct{} // closed when a shared image is served no more
	squashfuse int           // process ids
	bubblewrap int
	program    int // Apptainer
	serverLog  *tail
}

// death is a child that has ended.
type death struct {
	pid    int
	status syscall.WaitStatus
}

// listen waits for the word to stop. When the caller is gone, so is the
// container: with its first process the kernel ends all of them.
func (c *container) listen(control *json.Decoder) {
	var word struct{}
	if control.Decode(&word) == nil {
		close(c.stop)
		_ = control.Decode(&word)
	}
	if c.plain() {
		killSession(os.Getpid())
	}
	os.Exit(1) //nolint:forbidigo // this is the end of a process of ours, whose caller is gone
}

// run sets the container up and runs its command.
func (c *container) run() (code int, err error) {
	if err := os.Chdir(c.Scratch); err != nil {
		return 0, fmt.Errorf("enter its scratch directory: %w", err)
	}
	for _, dir := range []string{lowerDir, upperDir, workDir, rootDir, shmDir} {
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // upper/ becomes the container's root, and its parent is 0700
			return 0, fmt.Errorf("make its scratch directory: %w", err)
		}
	}
	// bubblewrap looks its child up in /proc, and so does terminate.
	if err := mountProc(); err != nil {
		return 0, err
	}
	if err := c.placeImage(); err != nil {
		return 0, err
	}
	if err := c.furnishRoot(); err != nil {
		return 0, err
	}
	if err := c.showDriver(); err != nil {
		return 0, err
	}
	args, err := c.bubblewrapArgs()
	if err != nil {
		return 0, err
	}
	b, err := c.startBubblewrap(args)
	if err != nil {
		return 0, err
	}
	c.begin()
	code, err = c.supervise(b)
	if err == nil && code != 0 && imageIsLost() {
		return 0, c.awaitLoss()
	}
	return code, err
}

// begin tells the caller, once, that the command begins.
func (c *container) begin() {
	if !c.began {
		c.began = true
		_ = c.report.Encode(initReport{Began: true}) // a caller who is gone ends it all
	}
}

// mountProc mounts the /proc of init's own pid namespace.
func mountProc() error {
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return lacking("this node does not let user namespaces mount /proc, perhaps because it is a container itself: %w", err)
	}
	return nil
}

// reap waits for children, of its own and orphans of the container, as the
// first process of a namespace has to.
func (c *container) reap() {
	defer close(c.deaths)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		c.deaths <- death{pid, status}
	}
}

// end kills what is left and waits for it, so that its processor time is known.
func (c *container) end() {
	switch {
	case c.squashfuse == 0 && c.bubblewrap == 0 && c.program == 0:
		return
	case c.plain():
		c.endSession()
		return
	default:
		_ = syscall.Kill(-1, syscall.SIGKILL)
	}
	for range c.deaths { // until there are none
	}
}

// mountImage starts squashfuse and waits until it serves the image.
func (c *container) mountImage() error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start squashfuse: %w", err)
	}
	c.serverLog = readTail(r)
	var before unix.Stat_t
	if err := unix.Stat(lowerDir, &before); err != nil {
		return fmt.Errorf("mount the image: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("start squashfuse: %w", err)
	}
	// A signal to the whole job must not take the image from a command that is
	// saving its results: libfuse leaves signals that it finds ignored alone
	// (lib/fuse_signals.c: set_one_signal_handler).
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	args := []string{c.Squashfuse, "-f", "-o", fmt.Sprintf("offset=%d", c.Offset), c.SIF, lowerDir}
	c.squashfuse, err = syscall.ForkExec(c.Squashfuse, args, &syscall.ProcAttr{ //nolint:gosec // a program of the host, found by us
		Files: []uintptr{null.Fd(), w.Fd(), w.Fd()},
	})
	handleSignals()
	_ = w.Close()
	_ = null.Close()
	if err != nil {
		return fmt.Errorf("start squashfuse: %w", err)
	}
	go c.reap()
	return c.awaitMount(before)
}

var errStopped = errors.New("stopped before the command began")

// awaitMount returns when the image is mounted on lowerDir.
func (c *container) awaitMount(before unix.Stat_t) error {
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for {
		select {
		case d := <-c.deaths:
			return c.lost(d)
		case <-c.stop:
			return errStopped
		case <-tick.C:
			var now unix.Stat_t
			if err := unix.Stat(lowerDir, &now); err == nil && now.Dev != before.Dev {
				return nil
			}
		}
	}
}

// lost says why the image is gone.
func (c *container) lost(d death) error {
	if d.pid != c.squashfuse {
		return fmt.Errorf("process %d ended before it began", d.pid)
	}
	how := describe(d.status)
	if said := c.serverLog.String(); said != "" {
		how += ": " + said
	}
	return fmt.Errorf("squashfuse, which serves the image's files, has ended (%s)", how)
}

// tail keeps the end of what a program says.
type tail struct {
	done chan struct{}
	text []byte
}

// tailBytes is how much a tail keeps.
const tailBytes = 4096

// readTail reads r to its end, in a goroutine of its own, and closes it.
func readTail(r io.ReadCloser) *tail {
	t := &tail{done: make(chan struct{})}
	go func() {
		defer close(t.done)
		defer func() { _ = r.Close() }()
		buf := make([]byte, tailBytes)
		for {
			n, err := r.Read(buf)
			t.text = append(t.text, buf[:n]...)
			t.text = t.text[max(0, len(t.text)-tailBytes):]
			if err != nil {
				return
			}
		}
	}()
	return t
}

// String waits for the program's end and gives its last words.
func (t *tail) String() string {
	<-t.done
	return strings.TrimSpace(string(t.text))
}
