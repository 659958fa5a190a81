package pods

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
)

// callTimeout bounds a request with its repetitions, except for a watch.
const callTimeout = 30 * time.Second

// client sends the requests about pods of one namespace.
type client struct {
	rest      rest.Interface
	namespace string
}

func connect(access kubeclient.Access) (*client, error) {
	config, namespace, err := access.Config()
	if err != nil {
		return nil, err
	}
	api, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kubeclient.ErrAccess, err)
	}
	return &client{rest: api, namespace: namespace}, nil
}

// do sends a request and reads the answer into an object; nil reads none. client-go repeats it after 429, and after 5xx
// with a time to wait. A refusal is in the API server's words.
func (c *client) do(ctx context.Context, request *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(withoutLog(ctx), callTimeout)
	defer cancel()
	result := request.Namespace(c.namespace).Do(ctx)
	if into == nil {
		return plain(result.Error())
	}
	return plain(result.Into(into))
}

func (c *client) get(ctx context.Context, name string) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := c.do(ctx, c.rest.Get().Resource("pods").Name(name), &pod)
	return &pod, err
}

// create makes a pod. If the answer is lost, it asks whether the pod is there. dryRun only asks whether the server would.
func (c *client) create(ctx context.Context, pod *corev1.Pod, dryRun bool) (*corev1.Pod, error) {
	var made corev1.Pod
	options := metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	err := c.do(ctx, c.rest.Post().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).Body(pod), &made)
	if apierrors.IsAlreadyExists(err) && !dryRun { // an answer was lost: no other pod has this name
		return c.get(ctx, pod.Name)
	}
	return &made, err
}

// remove deletes a pod. It is no error if there is none.
func (c *client) remove(ctx context.Context, name string, grace time.Duration) error {
	seconds := int64(grace / time.Second)
	err := c.do(ctx, c.rest.Delete().Resource("pods").Name(name).Body(&metav1.DeleteOptions{GracePeriodSeconds: &seconds}), nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// list returns the pods of this package.
func (c *client) list(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	options := metav1.ListOptions{LabelSelector: labels.Set{appLabel: appName}.String()}
	err := c.do(ctx, c.rest.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec), &pods)
	return pods.Items, err
}

// events returns the events of a pod.
func (c *client) events(ctx context.Context, pod *corev1.Pod) ([]corev1.Event, error) {
	var events corev1.EventList
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)).String()}
	err := c.do(ctx, c.rest.Get().Resource("events").VersionedParams(&options, metav1.ParameterCodec), &events)
	return events.Items, err
}

// withoutLog keeps client-go's own log out of ours: the errors tell all.
func withoutLog(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// The pauses of follow after a failure.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 10 * time.Second
)

// follow sends each state of a pod to seen until ctx ends; nil means that the pod is gone, and is the last one. It
// watches, and asks anew if the watch breaks off or its begin is too old (410 Gone).
func (c *client) follow(ctx context.Context, name string, seen chan<- *corev1.Pod) {
	send := func(pod *corev1.Pod) bool {
		select {
		case seen <- pod:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for failures := 0; ctx.Err() == nil; {
		pod, err := c.get(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
			send(nil)
			return
		case err == nil:
			if !send(pod) {
				return
			}
			var gone bool
			if gone, err = c.watch(ctx, pod, send); gone {
				return
			}
		}
		if err == nil {
			failures = 0
			continue
		}
		failures++
		if backoff.Wait(ctx, failures, firstPause, longestPause) != nil {
			return
		}
	}
}

// watch sends the later states of a pod until the watch ends. gone reports that it has sent the last one.
func (c *client) watch(ctx context.Context, pod *corev1.Pod, send func(*corev1.Pod) bool) (gone bool, err error) {
	options := metav1.ListOptions{Watch: true, FieldSelector: fields.OneTermEqualSelector("metadata.name", pod.Name).String(), ResourceVersion: pod.ResourceVersion}
	w, err := c.rest.Get().Namespace(c.namespace).Resource("pods").VersionedParams(&options, metav1.ParameterCodec).Watch(withoutLog(ctx))
	if err != nil {
		return false, plain(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		next, ok := event.Object.(*corev1.Pod)
		switch {
		case event.Type == watch.Deleted && ok:
			return send(next) && send(nil) || true, nil
		case event.Type == watch.Error || !ok:
			return false, plain(apierrors.FromObject(event.Object))
		case !send(next):
			return true, nil
		}
	}
	return false, nil
}

// plain returns an error of the API without client-go's words about the request around it.
func plain(err error) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || err == nil {
		return err
	}
	return &apiError{status: status}
}

// apiError is a refusal of the API server, in its words.
type apiError struct{ status *apierrors.StatusError }

func (e *apiError) Error() string { return strings.TrimSpace(e.status.ErrStatus.Message) }

func (e *apiError) Unwrap() error { return e.status }
