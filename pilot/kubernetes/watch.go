package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// watcher holds the pods of one manager as the cluster reports them.
//
// client-go's Reflector does the work: it lists the pods, watches them from there, watches again when the server
// ends the watch, lists again when the server has forgotten the place (410 Gone), and waits longer after each failure.
// A watch that is not open gives no answer, because its pods may be old.
type watcher struct {
	cluster *Cluster
	manager string

	mu      sync.Mutex
	all     map[string]*corev1.Pod // by name
	fresh   map[string]*corev1.Pod // pods created here that no report has shown yet
	version string                 // the resource version up to which reports have come
	synced  bool                   // all is complete
	open    int                    // the number of open watches
	last    error                  // the last failure since a watch was open
	changed chan struct{}          // closed at the next change of synced, open or last
}

// newWatcher returns a watcher of a manager's pods.
func newWatcher(c *Cluster, manager string) *watcher {
	return &watcher{cluster: c, manager: manager, all: map[string]*corev1.Pod{}, fresh: map[string]*corev1.Pod{}, changed: make(chan struct{})}
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	ctx = withoutLog(ctx)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return w.list(ctx, options)
		},
		WatchFuncWithContext: w.watch,
	}
	reflector := cache.NewReflectorWithOptions(source, &corev1.Pod{}, (*store)(w), cache.ReflectorOptions{Name: "workers", TypeDescription: "pods"})
	reflector.RunWithContext(ctx)
}

func (w *watcher) list(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	c := w.cluster
	options.LabelSelector = selector(w.manager)
	// The reflector's first list may be old ("0", tools/cache/reflector.go: relistResourceVersion), and lack the pods that
	// an earlier manager has just created. This one would start them again.
	if options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
	list := &corev1.PodList{}
	err := do(ctx, c.in(c.reads.Get(), "pods").VersionedParams(&options, metav1.ParameterCodec), list)
	w.note(err)
	return list, err
}

func (w *watcher) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	c := w.cluster
	options.LabelSelector, options.Watch = selector(w.manager), true
	opened, err := c.in(c.reads.Get(), "pods").VersionedParams(&options, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		// The reflector first asks for the pods and their changes by one request. An older server refuses that, and
		// the reflector lists them instead.
		if refused := code(err); options.SendInitialEvents == nil || refused == 0 || refused >= http.StatusTooManyRequests {
			w.note(err)
		}
		return nil, err //nolint:wrapcheck // the reflector reads it
	}
	w.change(func() { w.open, w.last = w.open+1, nil })
	return &openWatch{Interface: opened, closed: sync.OnceFunc(func() { w.change(func() { w.open-- }) })}, nil
}

// openWatch is a watch that counts as open until it is stopped. The reflector stops each one that has ended.
type openWatch struct {
	watch.Interface
	closed func()
}

// Stop ends the watch.
func (o *openWatch) Stop() {
	o.closed()
	o.Interface.Stop()
}

// note notes the failure of a request.
func (w *watcher) note(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		w.change(func() { w.last = err })
	}
}

// change makes a change, and wakes the waiters.
func (w *watcher) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

// outageWithin is the time for which a caller waits for a watch that is not open. Most are open again at once.
const outageWithin = 10 * time.Second

// pods returns all pods, or an error if no watch is open. The first failure ends the wait for the first answer, so that a
// wrong address or login is reported at once.
func (w *watcher) pods(ctx context.Context) ([]corev1.Pod, error) {
	timeout, cancel := context.WithTimeout(ctx, outageWithin)
	defer cancel()
	for {
		w.mu.Lock()
		answer, last, first, changed := w.answer(), w.last, !w.synced, w.changed
		w.mu.Unlock()
		if answer != nil {
			return answer, nil
		}
		if first && last != nil {
			return nil, w.cluster.failed("list the workers", last)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timeout.Done():
			return nil, w.cluster.failed("list the workers", w.outage(last))
		}
	}
}

// answer returns the pods; nil if they are not known. The caller holds the lock.
func (w *watcher) answer() []corev1.Pod {
	if !w.synced || w.open == 0 {
		return nil
	}
	pods := make([]corev1.Pod, 0, len(w.all)+len(w.fresh))
	for _, pod := range w.all {
		pods = append(pods, *pod)
	}
	for _, pod := range w.fresh {
		pods = append(pods, *pod)
	}
	return pods
}

// outage returns the reason for which there is no watch.
func (w *watcher) outage(last error) error {
	if last == nil {
		return &Error{Op: "list the workers", Err: fmt.Errorf("the cluster %s has not answered within %s", w.cluster.Host, outageWithin), transient: true}
	}
	return last
}

// created adds a pod that this program has created, until the watch reports it.
func (w *watcher) created(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.all[pod.Name]; !known && after(pod.ResourceVersion, w.version) {
		w.fresh[pod.Name] = slim(pod)
	}
}

// after reports whether a resource version is later than another one, or cannot be compared with it.
func after(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err != nil || order > 0
}

// slim returns the parts of a pod that this package reads.
func slim(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message,
			Conditions: pod.Status.Conditions, ContainerStatuses: pod.Status.ContainerStatuses,
		},
	}
}

// store is the watcher as the reflector fills it.
type store watcher

// Add adds a pod.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update replaces a pod.
func (s *store) Update(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod, ok := obj.(*corev1.Pod); ok && isPilot(pod.Name) {
		delete(s.fresh, pod.Name)
		s.all[pod.Name], s.version = slim(pod), pod.ResourceVersion
	}
	return nil
}

// Delete removes a pod.
func (s *store) Delete(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod, ok := obj.(*corev1.Pod); ok {
		delete(s.fresh, pod.Name)
		delete(s.all, pod.Name)
		s.version = pod.ResourceVersion
	}
	return nil
}

// Replace replaces all pods by those of a list. A pod that was created after the list stays.
func (s *store) Replace(list []any, version string) error {
	all := map[string]*corev1.Pod{}
	for _, obj := range list {
		if pod, ok := obj.(*corev1.Pod); ok && isPilot(pod.Name) {
			all[pod.Name] = slim(pod)
		}
	}
	w := (*watcher)(s)
	w.change(func() {
		maps.DeleteFunc(w.fresh, func(name string, pod *corev1.Pod) bool {
			return all[name] != nil || !after(pod.ResourceVersion, version)
		})
		w.all, w.version, w.synced = all, version, true
	})
	return nil
}

// Resync does nothing: the pods are here.
func (s *store) Resync() error { return nil }
