package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// Backend runs pilots in pods. The exported fields are set before the first use.
type Backend struct {
	Cluster *Cluster
	// Manager is the name of the manager, a label value (CheckManager).
	Manager  string
	Settings Settings
	// User and Password are the login of workers that have no token. They are in the pods' Secrets.
	User, Password string
	Now            func() time.Time

	watch    atomic.Pointer[watcher] // nil unless Run has begun
	shown    []corev1.Pod            // the last answer of the cluster
	equipped map[string]bool         // the pods whose Secret is certainly there
	tokens   map[string]string       // of pods whose Secret could not be created
	events   map[string]findings     // by pod
	noEvents error                   // the refusal of events
}

var _ pilot.Backend = (*Backend)(nil)

// CheckManager fails for a name that no label may have (the API's rules about label values).
func CheckManager(name string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`).MatchString(name) {
		return fmt.Errorf("%q cannot be a label in Kubernetes: it needs 1 to 63 letters, digits, -, _ and ., with a letter or digit at both ends", name)
	}
	return nil
}

// selector returns the selector of a manager's pods.
func selector(manager string) string {
	return AppLabel + "=" + appName + "," + ManagerLabel + "=" + manager
}

// NewName returns the name of a new pilot and its pod (kubernetes_worker_manager.py: start_worker_job).
func (b *Backend) NewName() string { return prefix + pilot.NewID() }

// TokenLife is that of all clouds.
func (b *Backend) TokenLife() time.Duration { return pilot.CloudTokenLife }

// Start creates a pilot's pod and its Secret. If only the Secret is missing at the end, the pilot has started, and
// Tidy creates it.
func (b *Backend) Start(ctx context.Context, name, token string) (pilot.Pilot, error) {
	pod, err := b.createPod(ctx, name, token)
	if err != nil {
		return pilot.Pilot{}, err
	}
	if w := b.watch.Load(); w != nil {
		w.created(pod)
	}
	err = b.equip(ctx, pod, token)
	if refused, ok := errors.AsType[*Error](err); ok && !refused.transient {
		return pilot.Pilot{}, errors.Join(err, b.delete(ctx, pod, 0))
	}
	if ctx.Err() != nil {
		return pilot.Pilot{}, ctx.Err()
	}
	return pilotOf(pod), nil
}

// mostTries bounds the tries of a request. The pause between two starts at firstPause.
const (
	mostTries  = 4
	firstPause = 200 * time.Millisecond
	mostPause  = 5 * time.Second
)

// repeat sends a request again while its failure may pass at once. An exceeded quota may pass, but not so soon. The
// error is uncertain if one of the tries was.
func (c *Cluster) repeat(ctx context.Context, op string, send func() error) error {
	uncertain := false
	for try := 1; ; try++ {
		err := send()
		if err == nil {
			return nil
		}
		err = c.failed(op, err)
		failed, ok := errors.AsType[*Error](err)
		if !ok {
			return err
		}
		uncertain = uncertain || failed.uncertain
		failed.uncertain = uncertain
		if !failed.transient || apierrors.IsForbidden(err) || try == mostTries {
			return failed
		}
		if err := backoff.Wait(ctx, try, firstPause, mostPause); err != nil {
			return err
		}
	}
}

// createPod creates a pod. After a lost answer it creates the pod again: that is also the look for its name, since
// AlreadyExists means that the first creation was successful.
func (b *Backend) createPod(ctx context.Context, name, token string) (*corev1.Pod, error) {
	c := b.Cluster
	pod := &corev1.Pod{}
	err := c.repeat(ctx, "start worker "+name, func() error {
		err := do(ctx, c.in(c.starts.Post(), "pods").Body(b.pod(name, b.login(token))), pod)
		if apierrors.IsAlreadyExists(err) {
			err = do(ctx, c.in(c.starts.Get(), "pods").Name(name), pod)
		}
		return err
	})
	return pod, err
}

// equip creates the Secret of a pod. It is no error if the Secret is there already. After a failure the token is kept for
// the next call.
func (b *Backend) equip(ctx context.Context, pod *corev1.Pod, token string) error {
	if b.equipped == nil {
		b.equipped, b.tokens = map[string]bool{}, map[string]string{}
	}
	c := b.Cluster
	err := c.repeat(ctx, "give worker "+pod.Name+" its login", func() error {
		err := do(ctx, c.in(c.starts.Post(), "secrets").Body(secret(pod, b.login(token))), nil)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	if err != nil {
		b.tokens[pod.Name] = token
		return err
	}
	b.equipped[pod.Name] = true
	delete(b.tokens, pod.Name)
	return nil
}

// Refresh is short: a watch reports changes, and looking at them costs no request.
func (b *Backend) Refresh() time.Duration { return 5 * time.Second }

// Pilots returns the pilots of the manager's pods.
func (b *Backend) Pilots(ctx context.Context) ([]pilot.Pilot, error) {
	pods, err := b.pods(ctx)
	if err != nil {
		return nil, err
	}
	b.shown = pods
	if err := b.askEvents(ctx, pods); err != nil {
		return nil, err
	}
	scaling := b.autoscalerWorks()
	pilots := make([]pilot.Pilot, 0, len(pods))
	for i := range pods {
		p, found := pilotOf(&pods[i]), b.events[pods[i].Name]
		found.scaling = found.scaling || found.asked.IsZero() && scaling
		switch {
		case p.Phase == pilot.Pending:
			p.Trouble, p.Patience = trouble(&pods[i], found)
		case p.Phase == pilot.Ended && found.eviction != "":
			p.Reason, p.Cancelled = found.eviction, false
		}
		pilots = append(pilots, p)
	}
	return pilots, nil
}

// Run watches the pods until ctx ends, so that Pilots need not list them each time. Another goroutine may use the backend.
func (b *Backend) Run(ctx context.Context) error {
	w := newWatcher(b.Cluster, b.Manager)
	b.watch.Store(w)
	defer b.watch.Store(nil)
	w.run(ctx)
	return nil
}

// pods returns the manager's pods.
func (b *Backend) pods(ctx context.Context) ([]corev1.Pod, error) {
	if w := b.watch.Load(); w != nil {
		return w.pods(ctx)
	}
	pods, err := b.Cluster.listPods(ctx, selector(b.Manager))
	if err != nil {
		return nil, err
	}
	var ours []corev1.Pod
	for _, pod := range pods {
		if isPilot(pod.Name) {
			ours = append(ours, pod)
		}
	}
	return ours, nil
}

func isPilot(name string) bool {
	id, ok := strings.CutPrefix(name, prefix)
	return ok && pilot.IsID(id)
}

// Stop deletes a pilot's pod: the worker gets TERM. Stop waits neither for the worker nor for a pod with a finalizer
// or on a node that is gone.
func (b *Backend) Stop(ctx context.Context, p pilot.Pilot) error {
	return b.delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}, graceSeconds)
}

// StopRemovesLog says that the log of a pilot goes with its pod. To keep it, Stop would have to end the pod by a deadline, and the
// manager's account would need the right to change pods.
func (*Backend) StopRemovesLog() {}

// delete deletes a pod, and only that of the same UID if it has one. It is no error if the pod is gone.
func (b *Backend) delete(ctx context.Context, pod *corev1.Pod, grace int64) error {
	c := b.Cluster
	options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, GracePeriodSeconds: &grace}
	if pod.UID != "" {
		options.Preconditions = &metav1.Preconditions{UID: &pod.UID}
	}
	return c.repeat(ctx, "end worker "+pod.Name, func() error {
		err := do(ctx, c.in(c.kills.Delete(), "pods").Name(pod.Name).Body(&options), nil)
		if apierrors.IsNotFound(err) && !namespaceMissing(err) || apierrors.IsConflict(err) { // gone, or another pod has its name
			return nil
		}
		return err
	})
}

func namespaceMissing(err error) bool { return strings.HasPrefix(err.Error(), "namespaces ") }
