package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Kubernetes checks that the environment names the cluster of scripts/kubernetes and that its API server answers. It
// returns the path of the script.
func Kubernetes(tb testing.TB) (script string) {
	tb.Helper()
	need(tb, kubernetes, nil)
	script = os.Getenv("CLTEST_KUBERNETES")
	if script == "" || os.Getenv("KUBECONFIG") == "" {
		need(tb, kubernetes, errors.New(`CLTEST_KUBERNETES and KUBECONFIG are not set: scripts/kubernetes up, then eval "$(scripts/kubernetes env)"`))
	}
	ready := exec.CommandContext(tb.Context(), "kubectl", "get", "--raw", "/readyz")
	if out, err := ready.CombinedOutput(); err != nil {
		need(tb, kubernetes, fmt.Errorf("kubectl get --raw /readyz: %w: %s", err, bytes.TrimSpace(out)))
	}
	return script
}
