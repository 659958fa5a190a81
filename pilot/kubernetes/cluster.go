package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
)

const (
	// answerWithin bounds one request and its repetitions; those of watches and logs have no bound.
	answerWithin = 30 * time.Second
	// mostPerSecond and mostAtOnce bound the requests of each kind.
	mostPerSecond, mostAtOnce = 50, 100
	// pageSize is the number of objects of an answer.
	pageSize = 500
)

// Cluster is a client of one namespace of a cluster.
type Cluster struct {
	// Host is the address of the API server, Namespace the namespace.
	Host, Namespace string

	// Each kind of requests has a limit of its own, so that a thousand starts delay no kill.
	reads, starts, kills rest.Interface
}

// Connect returns a client. It sends nothing yet. It fails with kubeclient.ErrAccess.
func Connect(a kubeclient.Access) (*Cluster, error) {
	config, namespace, err := a.Config()
	if err != nil {
		return nil, err
	}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kubeclient.ErrAccess, err)
	}
	c := &Cluster{Host: config.Host, Namespace: namespace}
	for _, client := range []*rest.Interface{&c.reads, &c.starts, &c.kills} {
		if *client, err = limited(*config, transport); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// limited returns a client with a limit of its own.
func limited(config rest.Config, transport *http.Client) (rest.Interface, error) {
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(mostPerSecond, mostAtOnce)
	client, err := rest.RESTClientForConfigAndClient(&config, transport)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kubeclient.ErrAccess, err)
	}
	return client, nil
}

// mostRepeats bounds the repetitions of a request to which the server answers 429, or 5xx with a time to wait.
// client-go makes them.
const mostRepeats = 3

// in returns a request about a resource of the namespace.
func (c *Cluster) in(request *rest.Request, resource string) *rest.Request {
	return request.Namespace(c.Namespace).Resource(resource).MaxRetries(mostRepeats)
}

// withoutLog keeps client-go from writing to standard error. Its failures are in the errors that it returns, too.
func withoutLog(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// do sends a request, and reads the answer into an object; nil reads none.
func do(ctx context.Context, request *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(withoutLog(ctx), answerWithin)
	defer cancel()
	result := request.Do(ctx)
	if into == nil {
		return result.Error() //nolint:wrapcheck // Cluster.failed reads and wraps it
	}
	return result.Into(into) //nolint:wrapcheck // Cluster.failed reads and wraps it
}

// listPods returns the pods of a selector, page by page.
func (c *Cluster) listPods(ctx context.Context, selector string) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	options := metav1.ListOptions{LabelSelector: selector, Limit: pageSize}
	for {
		var page corev1.PodList
		request := c.in(c.reads.Get(), "pods").VersionedParams(&options, metav1.ParameterCodec)
		if err := do(ctx, request, &page); err != nil {
			return nil, c.failed("list the workers", err)
		}
		pods = append(pods, page.Items...)
		if options.Continue = page.Continue; options.Continue == "" {
			return pods, nil
		}
	}
}
