package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/backoff"
)

// Runtime runs containers as pods. It runs [container.Container].PinnedReference, which the nodes pull.
type Runtime struct {
	Settings
	// CPUs and GPUs are the numbers that the container gets; no CPUs means no limit.
	CPUs, GPUs int
	// Helper is the path of a statically linked program that begins with runner.Main, on a volume of Settings; empty
	// means this program.
	Helper string
	// Patience is the time for which a pod may wait for a node, an image or a quota; 0 means an hour. Silence is that
	// without a beat of the caller after which the container ends; 0 means two minutes.
	Patience, Silence time.Duration
}

var _ container.Runtime = Runtime{}

const (
	usualPatience = time.Hour
	usualSilence  = 2 * time.Minute
)

// Run is [container.Runtime]'s, with the differences in docs/containers.md. The container is root if the calling user
// is; else it is that user.
func (r Runtime) Run(ctx context.Context, c container.Container) (container.Exit, error) {
	r.Patience, r.Silence = cmp.Or(r.Patience, usualPatience), cmp.Or(r.Silence, usualSilence)
	if c.OnChoice != nil {
		c.OnChoice(container.Choice{Runtime: runtimes.Kubernetes, Reason: string(runtimes.Kubernetes) + " was asked for"})
	}
	exit, err := r.run(ctx, c)
	if err != nil {
		return container.Exit{}, fmt.Errorf("run container of %s: %w", c.PinnedReference, err)
	}
	return exit, nil
}

func (r Runtime) run(ctx context.Context, c container.Container) (container.Exit, error) {
	if ctx.Err() != nil {
		return container.Exit{}, ctx.Err()
	}
	api, err := connect(r.Access)
	if err != nil {
		return container.Exit{}, container.NotBegun(err)
	}
	api.namespace = r.Namespace
	p, err := r.prepare(c)
	if err != nil {
		return container.Exit{}, container.NotBegun(err)
	}
	p.api = api
	defer func() { _ = p.order.Close() }() // the beats have ended
	var sweeping sync.WaitGroup
	sweeping.Go(func() { api.removeAbandoned(ctx, time.Now()) }) //nolint:forbidigo // the API server's clock, as far as that is known
	defer sweeping.Wait()
	if err := p.create(ctx); err != nil {
		return container.Exit{}, err
	}
	return p.await(ctx)
}

// prepare plans the pod, and writes its order to the volume.
func (r Runtime) prepare(c container.Container) (*podRun, error) {
	switch {
	case c.PinnedReference == "":
		return nil, container.RequestErrorf("Kubernetes runs no SIF, and the image has no name")
	case c.Network == container.HostNetwork:
		return nil, container.RequestErrorf("a pod of a run has no network of its node")
	}
	if err := errors.Join(c.Validate(""), initproc.CheckExact(c.Binds)); err != nil {
		return nil, err
	}
	if len(c.Devices) > 0 {
		return nil, container.RequestErrorf("the devices of a pod come from the device plugins of its node")
	}
	dir, err := os.MkdirTemp(c.PrivateDir, "container-")
	if err != nil {
		return nil, fmt.Errorf("make its private directory: %w", err)
	}
	report, err := enter.MakeReport(dir)
	if err != nil {
		return nil, err
	}
	helper, err := enter.HelperPath(r.Helper)
	if err != nil {
		return nil, err
	}
	stdout, err := pathOf(c.Stdout)
	if err != nil {
		return nil, err
	}
	stderr, err := pathOf(c.Stderr)
	if err != nil {
		return nil, err
	}
	spec := enter.SpecFor(c, nil)
	spec.Env, spec.AddsImageEnv, spec.Patience = c.Env, true, r.Silence
	spec.Stdout, spec.Stderr, spec.Masked = stdout != "", stderr != "", c.Masked
	order, err := enter.Give(filepath.Join(dir, "control"), spec)
	if err != nil {
		return nil, err
	}
	pod, err := r.pod(c, append(order.Binds(helper, report, stdout, stderr), c.Binds...))
	if err != nil {
		return nil, errors.Join(err, order.Close())
	}
	return &podRun{Runtime: r, c: c, pod: pod, order: order, report: report, onStart: c.OnStart}, nil
}

// pathOf returns the path of an open file; "" for nil.
func pathOf(f *os.File) (string, error) {
	if f == nil {
		return "", nil
	}
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("find its output: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", container.RequestErrorf("the output of a pod goes to a regular file, and %s is none", f.Name())
	}
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return "", fmt.Errorf("find its output: %w", err)
	}
	return path, nil
}

// create makes the pod. It waits while a quota or the server does not let it.
func (p *podRun) create(ctx context.Context) error {
	patient, cancel := context.WithTimeout(ctx, p.Patience)
	defer cancel()
	for failures := 1; ; failures++ {
		made, err := p.api.create(ctx, p.pod, false)
		if err == nil {
			p.pod = made
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), p.remove(ctx, 0)) // the answer may have been lost
		}
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return container.RequestErrorf("Kubernetes refuses the pod: %w", err)
		}
		if isRefusal(err) || patient.Err() != nil {
			return &container.HostError{Err: fmt.Errorf("Kubernetes refuses the pod: %w", err), AnyRuntime: true} //nolint:staticcheck // a name
		}
		p.wait("Kubernetes does not take the pod yet: " + err.Error())
		if backoff.Wait(patient, failures, time.Second, time.Minute) != nil && ctx.Err() != nil {
			return errors.Join(ctx.Err(), p.remove(ctx, 0))
		}
	}
}

// isRefusal reports whether the server refuses a pod for a reason that does not pass by itself. An exceeded quota
// does (plugin/pkg/admission/resourcequota: "exceeded quota").
func isRefusal(err error) bool {
	if apierrors.IsForbidden(err) {
		return !isQuota(err)
	}
	return apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// Try asks the API server whether it would take a pod of this caller with a file of dir. It makes none.
func (r Runtime) Try(ctx context.Context, dir string) error {
	api, err := connect(r.Access)
	if err != nil {
		return err
	}
	api.namespace = r.Namespace
	pod, err := r.pod(container.Container{PinnedReference: "busybox"}, []container.Bind{{Source: dir, Target: "/work"}})
	if err != nil {
		return err
	}
	if _, err := api.create(ctx, pod, true); err != nil && !isQuota(err) {
		return fmt.Errorf("make pods in the namespace %s: %w", r.Namespace, err)
	}
	return nil
}

// abandonedAge is the time after its end from which a pod counts as abandoned by its caller.
const abandonedAge = 10 * time.Minute

// removeAbandoned removes the ended pods of callers that are gone. It ignores failures: the next run tries again.
func (c *client) removeAbandoned(ctx context.Context, now time.Time) {
	all, err := c.list(ctx)
	if err != nil {
		return
	}
	for _, pod := range all {
		status := statusOf(&pod)
		ended := pod.CreationTimestamp.Time
		if status != nil && status.State.Terminated != nil {
			ended = status.State.Terminated.FinishedAt.Time
		}
		if hasEnded(&pod) && now.Sub(ended) > abandonedAge {
			_ = c.remove(ctx, pod.Name, 0)
		}
	}
}

// killed is the end of a command that got KILL.
func killed() container.Exit {
	return container.Exit{Code: 128 + int(syscall.SIGKILL), Signal: int(syscall.SIGKILL)}
}
