package enter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/internal/background"
)

// byFiles is Main's argument for an order in files.
const byFiles = "by-files"

// The paths of an order in files in a container, and the names in its directory.
const (
	controlDir = "/.container/control"
	stdoutPath = "/.container/stdout"
	stderrPath = "/.container/stderr"
	usagePath  = "/.container/usage"
	orderName  = "order"
	beatName   = "beat"
)

// OrderFiles is the caller's end of a control by files. The directory is on a disk that caller and container share;
// the container sees it read-only:
//
//	order   Spec
//	beat    a number, which the caller raises every BeatPause; a Main that sees the same number for Spec.Patience
//	        ends the container, because its caller is gone
//
// Main writes the container's use to a third file as often. All are written in place: another host of a network disk sees that at its next open, and a renamed file perhaps later.
type OrderFiles struct {
	dir, usage string
	beat       *os.File
	n          int
}

// BeatPause is the time between two beats. It is also that between two looks of Main at them.
const BeatPause = 5 * time.Second

// Give writes an order into a new directory.
func Give(dir string, spec Spec) (*OrderFiles, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("give its order: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("give its order: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, orderName), text, 0o600); err != nil {
		return nil, fmt.Errorf("give its order: %w", err)
	}
	usage := dir + ".usage" // the container may write to it
	if err := os.WriteFile(usage, nil, 0o600); err != nil {
		return nil, fmt.Errorf("give its order: %w", err)
	}
	beat, err := os.OpenFile(filepath.Join(dir, beatName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("give its order: %w", err)
	}
	o := &OrderFiles{dir: dir, usage: usage, beat: beat}
	return o, o.Beat()
}

// Beat writes the next number.
func (o *OrderFiles) Beat() error {
	o.n++
	if _, err := fmt.Fprintf(offsetWriter{o.beat}, "%020d\n", o.n); err != nil {
		return fmt.Errorf("write a beat: %w", err)
	}
	return o.beat.Sync() // else a network disk may keep it back
}

// offsetWriter writes at the begin of a file.
type offsetWriter struct{ *os.File }

func (w offsetWriter) Write(text []byte) (int, error) { return w.WriteAt(text, 0) }

// usageBytes is the length of the file with the use.
const usageBytes = 512

// Usage returns the container's last use. It is zero before the first one, and if the command has written to the file.
func (o *OrderFiles) Usage() (u container.Usage) {
	f, err := os.Open(o.usage)
	if err != nil {
		return u
	}
	defer func() { _ = f.Close() }() // it was only read
	text := make([]byte, usageBytes)
	if n, err := f.ReadAt(text, 0); n != usageBytes || err != nil && !errors.Is(err, io.EOF) || json.Unmarshal(text, &u) != nil {
		return container.Usage{}
	}
	return u
}

// keepUsage writes the container's use until this process ends.
func keepUsage() {
	f, err := os.OpenFile(usagePath, os.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for {
		time.Sleep(BeatPause) //nolint:forbidigo // this process has nothing else to wait for
		text, err := json.Marshal(sample("/"))
		if err != nil || len(text) >= usageBytes {
			return
		}
		_, _ = fmt.Fprintf(offsetWriter{f}, "%-*s\n", usageBytes-1, text) // the next time again
		_ = f.Sync()
	}
}

// Taken removes the order once Main has read it, because it may have secrets. If that fails, the caller's private directory
// still keeps it from others.
func (o *OrderFiles) Taken() { _ = os.Remove(filepath.Join(o.dir, orderName)) }

// Close ends the beats.
func (o *OrderFiles) Close() error { return o.beat.Close() }

// Binds returns the binds that Main needs for an order in files. stdout and stderr are the files for the command's
// output, or empty.
func (o *OrderFiles) Binds(helper, report, stdout, stderr string) []container.Bind {
	binds := append(Binds(helper, report), container.Bind{Source: o.dir, Target: controlDir, ReadOnly: true}, container.Bind{Source: o.usage, Target: usagePath})
	if stdout != "" {
		binds = append(binds, container.Bind{Source: stdout, Target: stdoutPath})
	}
	if stderr != "" {
		binds = append(binds, container.Bind{Source: stderr, Target: stderrPath})
	}
	return binds
}

// FileArgs returns the container's command for an order in files.
func FileArgs() []string { return []string{ProgramPath, Command, byFiles} }

// fileControl is Main's end of OrderFiles.
type fileControl struct {
	dir      string
	patience time.Duration
}

func (c *fileControl) order() (spec Spec, err error) {
	text, err := os.ReadFile(filepath.Join(c.dir, orderName))
	if err != nil {
		return spec, err
	}
	if err = json.Unmarshal(text, &spec); err != nil {
		return spec, err
	}
	c.patience = spec.Patience
	if spec.AddsImageEnv {
		spec.Env = container.Container{Env: spec.Env}.Environment(ofImage(os.Environ()))
	}
	return spec, nil
}

// ofImage returns the variables of an image and of device plugins among those of a container's first process. The
// kubelet adds the addresses of services, the container runtime the name of the host, and runc a HOME, which is "/" in
// an image without a user database (libcontainer/init_linux.go: finalizeNamespace).
func ofImage(env []string) (image []string) {
	for _, assignment := range env {
		name, _, _ := strings.Cut(assignment, "=")
		if name != "HOSTNAME" && assignment != "HOME=/" && !strings.HasPrefix(name, "KUBERNETES_") {
			image = append(image, assignment)
		}
	}
	return image
}

// listen counts the looks without a new beat. It reads no clock: a host that was suspended has not looked.
func (c *fileControl) listen(func()) {
	most := max(int(c.patience/BeatPause), 2)
	last, same := "", 0
	for same < most {
		text, err := os.ReadFile(filepath.Join(c.dir, beatName))
		if err == nil && string(text) != last {
			last, same = string(text), 0
		} else {
			same++
		}
		time.Sleep(BeatPause) //nolint:forbidigo // this process has nothing else to wait for
	}
}

// outputFiles are the files for a command's output, in place of this process's own standard output and error.
type outputFiles struct {
	copied initproc.Output
	files  []*os.File
	failed syscall.Errno
	ended  chan struct{}
	synced <-chan struct{}
}

// openOutputFiles replaces this process's standard output and error by pipes, from which it copies to the files. It
// returns nil for an order without files, whose caller passes the output on.
func openOutputFiles(spec Spec) (*outputFiles, error) {
	if spec.Patience == 0 {
		return nil, nil
	}
	o := &outputFiles{ended: make(chan struct{})}
	for _, to := range []struct {
		given bool
		path  string
	}{{spec.Stdout, stdoutPath}, {spec.Stderr, stderrPath}} {
		if !to.given {
			to.path = os.DevNull
		}
		f, err := os.OpenFile(to.path, os.O_WRONLY|os.O_APPEND|syscall.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open its output: %w", err)
		}
		o.files = append(o.files, f)
	}
	var err error
	if o.copied, err = initproc.OpenOutput(o.files[0], o.files[1], spec.Masked); err != nil {
		return nil, err
	}
	stdout, stderr := o.copied.Descriptors()
	if err := errors.Join(unix.Dup3(int(stdout), unix.Stdout, 0), unix.Dup3(int(stderr), unix.Stderr, 0)); err != nil {
		return nil, fmt.Errorf("open its output: %w", err)
	}
	o.synced = background.Go(o.keepSynced)
	background.Detach(keepUsage) // ends with this process
	return o, nil
}

// syncPause is the time after which other hosts see the output: a network disk keeps it back until it is flushed.
const syncPause = time.Second

func (o *outputFiles) keepSynced() {
	tick := time.NewTicker(syncPause)
	defer tick.Stop()
	sizes := make([]int64, len(o.files))
	for {
		select {
		case <-o.ended:
			return
		case <-tick.C:
		}
		for i, f := range o.files {
			if info, err := f.Stat(); err == nil && info.Size() != sizes[i] {
				sizes[i] = info.Size()
				o.sync(f)
			}
		}
	}
}

// sync flushes a file. A network disk may refuse text only then, if it is full.
func (o *outputFiles) sync(f *os.File) {
	err := f.Sync()
	if errno, ok := errors.AsType[syscall.Errno](err); ok && errno != syscall.EINVAL && o.failed == 0 { // EINVAL: /dev/null
		o.failed = errno
	}
}

// close copies and flushes all output, and returns the first error.
func (o *outputFiles) close() syscall.Errno {
	if o == nil {
		return 0
	}
	close(o.ended)
	<-o.synced
	failed := o.copied.Flush()
	for _, f := range o.files {
		o.sync(f)
	}
	if failed == 0 {
		failed = o.failed
	}
	return failed
}
