package kubetest

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// Kubectl runs kubectl as the cluster's administrator, and returns its output.
func Kubectl(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := kubectl(args...)
	if err != nil {
		tb.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func kubectl(args ...string) (string, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(context.Background(), "kubectl", args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil {
		return said.String(), err
	}
	return out.String(), nil
}

// Apply makes objects, given as YAML or JSON.
func Apply(tb testing.TB, namespace, objects string) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "kubectl", "-n", namespace, "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(objects)
	if said, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("kubectl apply: %v: %s", err, said)
	}
}

// Evict asks the API server to evict a pod, as a drain of its node does.
func Evict(tb testing.TB, namespace, pod string) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "kubectl", "create", "--raw", "/api/v1/namespaces/"+namespace+"/pods/"+pod+"/eviction", "-f", "-")
	cmd.Stdin = strings.NewReader(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"` + pod + `"}}`)
	if said, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("evict %s: %v: %s", pod, err, said)
	}
}

// ApplyFile makes the objects of a file.
func ApplyFile(tb testing.TB, namespace, file string) {
	tb.Helper()
	objects, err := os.ReadFile(file)
	testenv.Must(tb, err)
	Apply(tb, namespace, string(objects))
}

// Claim makes a claim whose volume is a directory of this machine, which all nodes see.
func Claim(tb testing.TB, namespace, name, dir string) {
	tb.Helper()
	Apply(tb, namespace, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  storageClassName: ""
  claimRef: {namespace: %[1]s, name: %[2]s}
  hostPath: {path: %[3]s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[2]s}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: %[1]s
  resources: {requests: {storage: 1Gi}}
`, namespace, name, dir))
	tb.Cleanup(func() { _, _ = kubectl("delete", "persistentvolume", namespace, "--wait=false") })
}

// Host is this machine's address for pods.
func Host(tb testing.TB) string {
	tb.Helper()
	server, err := url.Parse(Kubectl(tb, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"))
	testenv.Must(tb, err)
	return server.Hostname()
}
