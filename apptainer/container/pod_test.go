package container_test

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/kubetest"
)

// The built-in runtime keeps its promises in a pod without privileges: the whole suite runs in one, as an ordinary
// user without capabilities. It leaves out tests that need more than the pod has: Go, Debian or root.
func TestSuiteHoldsInAPodWithoutPrivileges(t *testing.T) {
	t.Parallel()
	namespace := kubetest.Namespace(t)
	programs := strings.Fields(smallPrograms + " bwrap head ldd mksquashfs squashfuse_ll tar tee unshare unsquashfs")
	image := kubetest.Image(t, append(kubetest.Programs(t, programs...), kubetest.Self(t, "/usr/bin/suite"))...)
	end := kubetest.Run(t, namespace, kubetest.Pod{
		Image: image, OwnUsers: true, Limits: map[string]string{"smarter-devices/fuse": "1"},
		Security: map[string]any{
			"procMount": "Unmasked", "runAsUser": 1000, "runAsGroup": 1000,
			"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []string{"ALL"}},
		},
		Command: []string{
			"env", "TMPDIR=" + kubetest.Scratch, "CLTEST_REQUIRE=containers",
			"suite", "-test.v", "-test.timeout=8m", "-test.run", "^TestFidelity/^builtin-one-id$", "-test.skip", "CallsThatDockerRefuses|ForkBomb|KeysOfTheAccount|InstallsSoftware|PipInstalls|WritesToTheReport",
		},
	})
	passed := strings.Count(end.Output, "/builtin-one-id (")
	if !end.Succeeded || passed < 25 || strings.Contains(end.Output, "--- SKIP") {
		t.Errorf("succeeded: %v; %d tests ended:\n%s", end.Succeeded, passed, end.Output)
	}
}
