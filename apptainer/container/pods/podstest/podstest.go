// Package podstest gives tests a namespace of the real cluster, and images on its nodes.
package podstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

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

// Namespace makes a namespace, which goes with the test.
func Namespace(tb testing.TB) string {
	tb.Helper()
	testenv.Kubernetes(tb)
	made := NewNamespace(tb)
	tb.Cleanup(func() { RemoveNamespace(made) })
	return made
}

// NewNamespace makes a namespace, which the caller removes.
func NewNamespace(tb testing.TB) string {
	tb.Helper()
	made := "run-" + strings.ToLower(rand.Text()[:10])
	Kubectl(tb, "create", "namespace", made)
	testenv.Await(tb, "the default service account is there", func() bool {
		_, err := kubectl("-n", made, "get", "serviceaccount", "default")
		return err == nil
	})
	return made
}

// RemoveNamespace removes a namespace and its pods. It does not wait.
func RemoveNamespace(namespace string) {
	_, _ = kubectl("-n", namespace, "delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
	_, _ = kubectl("delete", "namespace", namespace, "--wait=false")
}

// Load brings an image to all nodes until the test's end, and returns its name.
func Load(tb testing.TB, image v1.Image) string {
	tb.Helper()
	loaded := load(tb, image)
	script := testenv.Kubernetes(tb)
	tb.Cleanup(func() { unload(script, loaded) })
	return loaded
}

func load(tb testing.TB, image v1.Image) string {
	tb.Helper()
	tag, err := name.NewTag("cl-slurm.example/test:" + strings.ToLower(rand.Text()))
	testenv.Must(tb, err)
	archive := filepath.Join(tb.TempDir(), "image.tar")
	testenv.Must(tb, tarball.WriteToFile(archive, tag, image))
	if said, err := exec.CommandContext(tb.Context(), testenv.Kubernetes(tb), "load", archive).CombinedOutput(); err != nil {
		tb.Fatalf("load the image: %v: %s", err, said)
	}
	return tag.Name()
}

func unload(script, image string) {
	_ = exec.CommandContext(context.Background(), script, "unload", image).Run() // the kubelet removes what is left
}

// Shared is an image for all tests of a process. TestMain removes it.
type Shared struct {
	once         sync.Once
	name, script string
}

// Name brings the image to all nodes once, and returns its name.
func (s *Shared) Name(tb testing.TB, image func() v1.Image) string {
	tb.Helper()
	s.once.Do(func() { s.name, s.script = load(tb, image()), testenv.Kubernetes(tb) })
	if s.name == "" {
		tb.Fatal("the image could not be loaded: see the first test that needs it")
	}
	return s.name
}

// Remove removes the image, if it was brought.
func (s *Shared) Remove() {
	if s.name != "" {
		unload(s.script, s.name)
	}
}
