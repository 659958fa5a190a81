package kubetest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

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
func Run(tb testing.TB, namespace string, p Pod) End {
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
		spec["hostUsers"], spec["nodeName"] = false, nodeWithUsers(tb)
	}
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": spec,
		"metadata": map[string]any{"name": name, "namespace": namespace},
	})
	testenv.Must(tb, err)
	Apply(tb, namespace, string(manifest))
	phase := await(tb, namespace, name)
	return End{Succeeded: phase == "Succeeded", Output: Kubectl(tb, "logs", name, "--namespace", namespace)}
}

// await waits for the end of a pod, and returns its last phase.
func await(tb testing.TB, namespace, name string) (phase string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*testenv.WaitLimit) // a whole suite may run in it
	defer cancel()
	watch := exec.CommandContext(ctx, "kubectl", "get", "pod", name, "--namespace", namespace, "--watch", `--output=jsonpath={.status.phase}{"\n"}`)
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
	tb.Fatalf("the pod does not end; it is %s: %s", phase, Kubectl(tb, "describe", "pod", name, "--namespace", namespace))
	return ""
}

// nodeWithUsers returns a node that gives pods user namespaces.
func nodeWithUsers(tb testing.TB) string {
	tb.Helper()
	var nodes struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				RuntimeHandlers []struct{ Features struct{ UserNamespaces bool } }
			}
		}
	}
	testenv.Must(tb, json.Unmarshal([]byte(Kubectl(tb, "get", "nodes", "--output=json")), &nodes))
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
