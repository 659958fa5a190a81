package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// Logged returns the pilots whose containers have begun. Running ones come first, then those that ended last.
func (b *Backend) Logged(ctx context.Context) ([]pilot.Pilot, error) {
	pods, err := b.pods(ctx)
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !begun(&pod) })
	slices.SortFunc(pods, func(x, y corev1.Pod) int {
		if ended := finished(&x); ended != finished(&y) {
			if ended {
				return 1
			}
			return -1
		}
		return endedAt(&y).Compare(endedAt(&x))
	})
	var pilots []pilot.Pilot
	for i := range pods {
		pilots = append(pilots, pilotOf(&pods[i]))
	}
	return pilots, nil
}

// begun reports whether the container has begun.
func begun(pod *corev1.Pod) bool {
	state := workerStatus(pod).State
	return state.Running != nil || state.Terminated != nil
}

// retryLog is the pause between two tries to follow a log.
const retryLog = time.Second

// WriteLog writes the log of a pilot's container. A followed one goes on after a lost connection: each line has
// its time, and the lines up to the last written one are left out.
func (b *Backend) WriteLog(ctx context.Context, w io.Writer, p pilot.Pilot, follow bool) error {
	c := b.Cluster
	out := &lines{to: w}
	for {
		ended, err := !follow, error(nil)
		if follow {
			ended, err = c.hasEnded(ctx, p.Name)
		}
		if err == nil {
			err = c.copyLog(ctx, out, p.Name, !ended)
		}
		switch {
		case out.failed != nil:
			return out.failed
		case ctx.Err() != nil:
			return ctx.Err()
		case ended && out.any && errors.Is(err, pilot.ErrNoLog): // the pod was removed after its last line
			return nil
		case err != nil && (ended || !passing(err)):
			return err
		case ended:
			return out.end()
		}
		if err := pause.For(ctx, retryLog); err != nil {
			return err
		}
	}
}

// passing reports whether a followed log may go on after an error: the container has not begun, or the cluster did not
// answer.
func passing(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return errors.Is(err, pilot.ErrNoLog) || ok && e.transient
}

// hasEnded reports whether a pilot's container has ended, or its pod is gone.
func (c *Cluster) hasEnded(ctx context.Context, name string) (bool, error) {
	var pod corev1.Pod
	err := do(ctx, c.in(c.reads.Get(), "pods").Name(name), &pod)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, c.failed("look for worker "+name, err)
	}
	return finished(&pod) || pod.DeletionTimestamp != nil && !begun(&pod), nil
}

// copyLog writes a log from the last line of out on.
func (c *Cluster) copyLog(ctx context.Context, out *lines, name string, follow bool) error {
	request := c.in(c.reads.Get(), "pods").Name(name).SubResource("log").
		Param("container", container).Param("timestamps", "true").Param("follow", strconv.FormatBool(follow))
	if !out.last.IsZero() {
		request.Param("sinceTime", out.last.UTC().Format(time.RFC3339))
	}
	stream, err := request.Stream(withoutLog(ctx))
	switch {
	case apierrors.IsBadRequest(err), apierrors.IsNotFound(err): // pkg/kubelet/kubelet_pods.go: validateContainerLogStatus
		return fmt.Errorf("%w: %w", pilot.ErrNoLog, err)
	case err != nil:
		return c.failed("read the log of worker "+name, err)
	}
	defer func() { _ = stream.Close() }() // only read
	if err := out.readFrom(stream); err != nil {
		return c.failed("read the log of worker "+name, err)
	}
	return nil
}

// lines writes lines without their times.
type lines struct {
	to     io.Writer
	last   time.Time // of the last written line
	any    bool
	remark string // the kubelet's last remark, such as that the container is removed
	failed error  // the writer's
}

// end returns ErrNoLog if there were no lines.
func (l *lines) end() error {
	switch {
	case l.any:
		return nil
	case l.remark != "":
		return fmt.Errorf("%w: %s", pilot.ErrNoLog, l.remark)
	}
	return pilot.ErrNoLog
}

// readFrom writes the lines of a stream that are newer than the last one. The rest of a line whose stream breaks is lost,
// so that nothing of it is written.
func (l *lines) readFrom(stream io.Reader) error {
	before := l.last
	in := bufio.NewReader(stream)
	line, err := in.ReadBytes('\n')
	for ; err == nil && l.failed == nil; line, err = in.ReadBytes('\n') {
		l.write(line, before)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if len(line) > 0 && l.failed == nil {
		l.write(line, before)
	}
	return nil
}

// write writes one line, which begins with its time (cri-client: pkg/logs: logWriter), unless an earlier stream had it.
// A line without a time is not the worker's.
func (l *lines) write(line []byte, before time.Time) {
	stamp, text, found := bytes.Cut(line, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	switch {
	case !found || err != nil:
		l.remark = string(bytes.TrimSpace(line))
	case before.IsZero() || at.After(before):
		l.last, l.any = at, true
		_, l.failed = l.to.Write(text)
	}
}
