package kubetest

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

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
	made := "test-" + strings.ToLower(rand.Text()[:10])
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
