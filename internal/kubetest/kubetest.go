// Package kubetest runs programs in pods of the cluster that scripts/kubernetes starts.
//
//	c := kubetest.Start(t)
//	image := c.Image(t, kubetest.Programs(t, "sh", "cat")...)
//	end := c.Run(t, kubetest.Pod{Image: image, Command: []string{"sh", "-c", "cat /proc/self/status"}})
//
// Each test has a namespace of its own. At the end of the test, its pods and images are removed.
package kubetest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// Cluster is the cluster, for one test.
type Cluster struct {
	// Namespace is the test's own.
	Namespace string

	script string
}

// Start makes a namespace in the cluster. Without a cluster, it skips the test.
func Start(tb testing.TB) Cluster {
	tb.Helper()
	c := Cluster{script: testenv.Kubernetes(tb), Namespace: "test-" + strings.ToLower(rand.Text()[:12])}
	c.Kubectl(tb, nil, "create", "namespace", c.Namespace)
	tb.Cleanup(func() {
		c.Kubectl(tb, nil, "delete", "namespace", c.Namespace, "--wait=false")
		// Otherwise its pods would run on for their grace.
		c.Kubectl(tb, nil, "delete", "pods", "--all", "--namespace", c.Namespace, "--grace-period=0", "--force")
	})
	// A pod can only be made when its namespace has an account.
	testenv.Await(tb, "the namespace has an account", func() bool {
		return exec.CommandContext(tb.Context(), "kubectl", "get", "serviceaccount", "default", "--namespace", c.Namespace).Run() == nil
	})
	return c
}

// Kubectl runs kubectl with this standard input, and returns its standard output. If it fails, the test ends.
func (c Cluster) Kubectl(tb testing.TB, stdin []byte, args ...string) string {
	tb.Helper()
	// Cleanups call it, when the test's context has ended.
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), "kubectl", args...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out)
}

// Image gives all nodes an image with these files, and returns its name.
func (c Cluster) Image(tb testing.TB, files ...imagetest.File) string {
	tb.Helper()
	name := "cl-slurm.example/" + c.Namespace + ":" + strings.ToLower(rand.Text()[:8])
	archive := filepath.Join(tb.TempDir(), "image.tar")
	image := imagetest.Image(tb, v1.Config{Env: []string{"PATH=/usr/bin:/bin"}}, imagetest.GzipLayer(tb, imagetest.TarStream(tb, files...)))
	imagetest.WriteSaved(tb, archive, true, map[string]v1.Image{name: image})
	tb.Cleanup(func() { c.call(tb, "unload", name) })
	c.call(tb, "load", archive)
	return name
}

func (c Cluster) call(tb testing.TB, args ...string) {
	tb.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(tb.Context()), c.script, args...).CombinedOutput(); err != nil {
		tb.Errorf("%s %s: %v: %s", c.script, strings.Join(args, " "), err, out)
	}
}

// Pod describes a pod with one container. The maps are parts of its manifest.
type Pod struct {
	Image   string
	Command []string
	// OwnUsers gives the pod a user namespace (hostUsers: false), on a node that can do that. Without such a node the
	// test is skipped.
	OwnUsers bool
	// Security is the securityContext of its container, and Limits its resources.limits.
	Security map[string]any
	Limits   map[string]string
}

// End is the end of a pod.
type End struct {
	Succeeded bool   // its container has exited with 0
	Output    string // of its container
}

// Scratch is a directory of each pod on the disk of its node, which every user may write to.
const Scratch = "/scratch"

// Run starts a pod, and waits for its end.
func (c Cluster) Run(tb testing.TB, p Pod) End {
	tb.Helper()
	name := "pod-" + strings.ToLower(rand.Text()[:12])
	spec := map[string]any{
		"restartPolicy": "Never",
		"dnsPolicy":     "Default",
		"volumes":       []any{map[string]any{"name": "scratch", "emptyDir": map[string]any{}}},
		"containers": []any{map[string]any{
			"name": "test", "image": p.Image, "imagePullPolicy": "Never", "command": p.Command,
			"securityContext": p.Security, "resources": map[string]any{"limits": p.Limits},
			"volumeMounts": []any{map[string]any{"name": "scratch", "mountPath": Scratch}},
		}},
	}
	if p.OwnUsers {
		spec["hostUsers"], spec["nodeName"] = false, c.nodeWithUsers(tb)
	}
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": spec,
		"metadata": map[string]any{"name": name, "namespace": c.Namespace},
	})
	testenv.Must(tb, err)
	c.Kubectl(tb, manifest, "create", "-f", "-")
	phase := c.await(tb, name)
	return End{Succeeded: phase == "Succeeded", Output: c.Kubectl(tb, nil, "logs", name, "--namespace", c.Namespace)}
}

// await waits for the end of a pod, and returns its last phase.
func (c Cluster) await(tb testing.TB, name string) (phase string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 5*testenv.WaitLimit) // a whole suite may run in it
	defer cancel()
	watch := exec.CommandContext(ctx, "kubectl", "get", "pod", name, "--namespace", c.Namespace, "--watch", `--output=jsonpath={.status.phase}{"\n"}`)
	out, err := watch.StdoutPipe()
	testenv.Must(tb, err)
	testenv.Must(tb, watch.Start())
	defer func() {
		cancel()
		_ = watch.Wait() // it was killed
	}()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if phase = lines.Text(); phase == "Succeeded" || phase == "Failed" {
			return phase
		}
	}
	tb.Fatalf("the pod does not end; it is %s: %s", phase, c.Kubectl(tb, nil, "describe", "pod", name, "--namespace", c.Namespace))
	return ""
}

// nodeWithUsers returns a node that gives pods user namespaces.
func (c Cluster) nodeWithUsers(tb testing.TB) string {
	tb.Helper()
	var nodes struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				RuntimeHandlers []struct{ Features struct{ UserNamespaces bool } }
			}
		}
	}
	testenv.Must(tb, json.Unmarshal([]byte(c.Kubectl(tb, nil, "get", "nodes", "--output=json")), &nodes))
	for _, n := range nodes.Items {
		for _, handler := range n.Status.RuntimeHandlers {
			if handler.Features.UserNamespaces {
				return n.Metadata.Name
			}
		}
	}
	tb.Skipf("none of %d nodes gives pods user namespaces: the containerd of Debian sid could not be fetched", len(nodes.Items))
	return ""
}
