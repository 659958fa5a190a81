package kubernetes

import (
	"context"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/cl-slurm/cl-slurm/pilot"
)

// Check tries everything that a manager does, and changes nothing. It creates a pod and a Secret by a dry run, which
// passes the cluster's permissions, quotas, policies and admission, and so says more than a question for permissions
// would. Of things that have to be there it tries one that is not: the cluster refuses a caller without the right first,
// and with the right answers NotFound. Check ends early if the cluster does not answer or accept the login.
func (b *Backend) Check(ctx context.Context) []pilot.Finding {
	c := b.Cluster
	version, err := c.version(ctx)
	if err != nil {
		return []pilot.Finding{{Name: "cluster", Text: cause(c.failed("", err))}}
	}
	findings := []pilot.Finding{{Name: "cluster", OK: true, Text: c.Host + ": Kubernetes " + version}}
	name := b.NewName()
	dry := func(r *rest.Request) *rest.Request { return r.Param("dryRun", metav1.DryRunAll) }
	pod := b.pod(name, login{token: placeholder})
	pod.UID = "00000000-0000-0000-0000-000000000000" // the Secret's owner, which a dry run does not look for
	for _, trial := range []struct {
		needed string
		send   func() error
	}{
		{"list pods", func() error { return do(ctx, c.in(c.reads.Get(), "pods").Param("limit", "1"), &corev1.PodList{}) }},
		{"watch pods", func() error { return c.tryWatch(ctx) }},
		{"create pods", func() error {
			return do(ctx, dry(c.in(c.starts.Post(), "pods")).Body(b.pod(name, login{token: placeholder})), nil)
		}},
		{"get pods", func() error { return absent(do(ctx, c.in(c.reads.Get(), "pods").Name(name), nil)) }},
		{"delete pods", func() error { return absent(do(ctx, dry(c.in(c.kills.Delete(), "pods")).Name(name), nil)) }},
		{"get pods/log", func() error { return absent(do(ctx, c.in(c.reads.Get(), "pods").Name(name).SubResource("log"), nil)) }},
		{"create secrets", func() error {
			return do(ctx, dry(c.in(c.starts.Post(), "secrets")).Body(secret(pod, login{token: placeholder})), nil)
		}},
		{"list events", func() error { return do(ctx, c.in(c.reads.Get(), "events").Param("limit", "1"), &corev1.EventList{}) }},
	} {
		f := pilot.Finding{Name: trial.needed, OK: true, Text: "in namespace " + c.Namespace}
		err := trial.send()
		if err != nil {
			f.OK, f.Text = false, cause(c.failed("", err))
		}
		findings = append(findings, f)
		if apierrors.IsUnauthorized(err) {
			break
		}
	}
	return findings
}

// cause returns the text of an error without the action.
func cause(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.cause().Error()
	}
	return err.Error()
}

// absent returns nil if the cluster permits an action and misses its object.
func absent(err error) error {
	if apierrors.IsNotFound(err) && !namespaceMissing(err) {
		return nil
	}
	return err
}

// version returns the version of the API server.
func (c *Cluster) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var answer struct {
		GitVersion string `json:"gitVersion"`
	}
	data, err := c.reads.Get().AbsPath("/version").DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	if err != nil {
		return "", err
	}
	return answer.GitVersion, nil
}

// tryWatch opens a watch, and ends it.
func (c *Cluster) tryWatch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	stream, err := c.in(c.reads.Get(), "pods").Param("watch", "true").Param("timeoutSeconds", "1").Param("limit", "1").Stream(ctx)
	if err != nil {
		return err //nolint:wrapcheck // Check reads it
	}
	return stream.Close()
}
