package pods_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/kubetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// caller runs a container from inside a pod.
var caller = testenv.Program{Package: "./testdata/caller"}

// callerSite is a namespace with a claim, and a caller's pod.
type callerSite struct {
	t              *testing.T
	namespace, dir string
}

// startCaller starts a caller's pod with a command for its container. volume is that at /work; empty means a claim.
func startCaller(t *testing.T, volume string, command ...string) *callerSite {
	t.Helper()
	return startCallerAs(t, "{}", volume, command...)
}

// startCallerAs starts a caller with a security context, for a namespace that enforces the standard restricted unless
// it is "{}".
func startCallerAs(t *testing.T, security, volume string, command ...string) *callerSite {
	t.Helper()
	testenv.Root(t)
	s := &callerSite{t: t, namespace: kubetest.Namespace(t)}
	if security != "{}" {
		kubetest.Kubectl(t, "label", "namespace", s.namespace, "pod-security.kubernetes.io/enforce=restricted")
	}
	dir, err := os.MkdirTemp("/var/tmp", "pods-test-")
	testenv.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.dir = dir
	testenv.Must(t, os.Chmod(dir, 0o777)) // of whatever user
	program, err := os.ReadFile(caller.Path(t))
	testenv.Must(t, err)
	image := kubetest.Load(t, imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Directory("tmp"), imagetest.Executable("caller", string(program))))))
	kubetest.ApplyFile(t, s.namespace, "../../../docs/kubernetes/runs.yaml")
	if volume == "" {
		volume = "persistentVolumeClaim: {claimName: lab-claim}"
		kubetest.Claim(t, s.namespace, "lab-claim", dir)
	}
	kubetest.Apply(t, s.namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: caller}
spec:
  serviceAccountName: cl-worker
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: worker
    image: %s
    command: [/caller, %q, %s]
    securityContext: %s
    env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts: [{name: work, mountPath: /work}]
  volumes: [{name: work, %s}]
`, image, shellImage(t), quoted(command), security, volume))
	return s
}

func quoted(words []string) string {
	for i := range words {
		words[i] = strconv.Quote(words[i])
	}
	return strings.Join(words, ", ")
}

// kubectl runs kubectl in the namespace.
func (s *callerSite) kubectl(args ...string) string {
	s.t.Helper()
	return kubetest.Kubectl(s.t, append([]string{"-n", s.namespace}, args...)...)
}

// await waits until kubectl prints a word.
func (s *callerSite) await(word string, args ...string) {
	s.t.Helper()
	last := ""
	testenv.Await(s.t, fmt.Sprintf("kubectl %s prints %q", strings.Join(args, " "), word), func() bool {
		last = s.kubectl(args...)
		return strings.Contains(last, word)
	}, &last)
}

// awaitOutput waits until the run has written a word.
func (s *callerSite) awaitOutput(word string) {
	s.t.Helper()
	testenv.Await(s.t, "the run has written "+word, func() bool {
		text, err := os.ReadFile(filepath.Join(s.dir, "out"))
		return err == nil && strings.Contains(string(text), word)
	})
}

func TestWorkerInAPodSharesItsClaimWithItsRuns(t *testing.T) {
	t.Parallel()
	s := startCaller(t, "", "id -u; exit 7")
	s.await("Succeeded", "get", "pod", "caller", "-o", "jsonpath={.status.phase}")
	if said := s.kubectl("logs", "caller"); said != "exit 7\n" {
		t.Errorf("the caller said %q", said)
	}
	s.awaitOutput("0\n")
}

func TestWorkerOfAUserAndItsRunsAreWithinTheRestrictedStandard(t *testing.T) {
	t.Parallel()
	s := startCallerAs(t, "{runAsUser: 4242, runAsGroup: 4242, runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}",
		"", "id -u; touch /etc/x || echo no root")
	s.await("Succeeded", "get", "pod", "caller", "-o", "jsonpath={.status.phase}")
	s.awaitOutput("4242\n")
	s.awaitOutput("no root")
}

func TestRunsGoWithThePodOfTheirWorker(t *testing.T) {
	t.Parallel()
	s := startCaller(t, "", "echo begun; sleep 1000")
	s.awaitOutput("begun")
	if owner := s.kubectl("get", "pods", "-l", "app=cl-run", "-o", "jsonpath={.items[*].metadata.ownerReferences[*].name}"); owner != "caller" {
		t.Errorf("the owner is %q", owner)
	}
	s.kubectl("delete", "pod", "caller", "--wait=false")
	testenv.Await(t, "no pod is left", func() bool { return s.kubectl("get", "pods", "-o", "name") == "" })
}

// Kubernetes keeps the pod of a worker that was killed, and so those of its runs.
func TestRunOfAKilledWorkerEndsWithoutBeats(t *testing.T) {
	t.Parallel()
	s := startCaller(t, "", "echo begun; sleep 1000", "crash")
	s.await("Failed", "get", "pod", "caller", "-o", "jsonpath={.status.phase}")
	if code := s.kubectl("get", "pod", "caller", "-o", "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"); code != "3" {
		t.Fatalf("the caller did not crash with 3, but ended with %s and said %q", code, s.kubectl("logs", "caller"))
	}
	s.await("Failed", "get", "pods", "-l", "app=cl-run", "-o", "jsonpath={.items[*].status.phase}")
}

func TestVolumeOfAPodAloneIsRefusedInWords(t *testing.T) {
	t.Parallel()
	s := startCaller(t, "emptyDir: {}", "true")
	s.await("Failed", "get", "pod", "caller", "-o", "jsonpath={.status.phase}")
	const want = "/work is on a volume of this worker's pod alone (emptyDir), which other pods cannot mount: the worker's pod needs a PersistentVolumeClaim there\n"
	if said := s.kubectl("logs", "caller"); said != want {
		t.Errorf("the caller said %q", said)
	}
}
