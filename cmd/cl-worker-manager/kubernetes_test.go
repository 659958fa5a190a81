package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestKubernetesRefusesFlagsThatDoNotFit(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config")
	testenv.Must(t, os.WriteFile(config, []byte(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`), 0o600))
	for words, flags := range map[string]string{
		"a token or a certificate needs the address of the cluster":                    "--auth-token x",
		"the address of the cluster excludes a kubeconfig":                             "--cluster-host h --kubeconfig k",
		`--worker-work-dir-prefix "scratch": want an absolute path below / in the pod`: "--kubeconfig " + config,
		`--bundle-runtime "podman": want docker or kubernetes`:                         "--kubeconfig " + config + " --bundle-runtime podman",
		`--bundle-runtime kubernetes needs --nfs-volume-name`:                          "--kubeconfig " + config + " --bundle-runtime kubernetes",
		`--toleration: "x:Sometimes" is no toleration: want key, key=value`:            "--kubeconfig " + config + " --toleration x:Sometimes",
		`--work-dir-size "much": want a size above 0, such as 50g`:                     "--kubeconfig " + config + " --work-dir-size much",
		`--manager-name "A_B": want up to 20 small letters`:                            "--kubeconfig " + config + " --manager-name A_B",
		`--node-selector "zone": want KEY=VALUE`:                                       "--kubeconfig " + config + " --node-selector zone",
		"--cpus and --memory-mb must be above 0":                                       "--kubeconfig " + config + " --cpus 0",
	} {
		args := []string{"--server", "http://127.0.0.1:1"}
		if strings.HasPrefix(words, "--worker-work-dir-prefix") {
			args = append(args, "--worker-work-dir-prefix", "scratch")
		}
		_, err := runHere(t, map[string]string{"CODALAB_USERNAME": "ann", "CODALAB_PASSWORD": "secret"}, append(append(args, "kubernetes", "--dry-run"), strings.Fields(flags)...)...)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v\nwant %s", flags, err, words)
		}
	}
}

// kubeSite is a namespace of the cluster of scripts/kubernetes.
type kubeSite struct {
	t         *testing.T
	namespace string
	// flags name the cluster in the way of CodaLab's page.
	flags []string
}

func newKubeSite(t *testing.T) *kubeSite {
	t.Helper()
	testenv.Kubernetes(t)
	k := &kubeSite{t: t, namespace: "test-" + strings.ToLower(rand.Text()[:12])}
	k.kubectl("create", "namespace", k.namespace)
	k.kubectl("label", "namespace", k.namespace, "pod-security.kubernetes.io/enforce=baseline")
	t.Cleanup(func() {
		k.kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--namespace", k.namespace)
		k.kubectl("delete", "namespace", k.namespace, "--wait=false")
	})
	k.kubectl("apply", "--namespace", k.namespace, "-f", "../../docs/kubernetes/rbac.yaml", "-f", "../../docs/kubernetes/token.yaml", "-f", "../../docs/kubernetes/network-policy.yaml")
	var token string
	testenv.Await(t, "the manager's account has a token", func() bool {
		token = k.decode(k.kubectl("get", "secret", "cl-worker-manager", "--namespace", k.namespace, "-o", "jsonpath={.data.token}"))
		return token != "" && exec.CommandContext(t.Context(), "kubectl", "get", "serviceaccount", "default", "--namespace", k.namespace).Run() == nil
	})
	cert := filepath.Join(t.TempDir(), "gke.crt")
	testenv.Must(t, os.WriteFile(cert, []byte(k.decode(k.kubectl("get", "secret", "cl-worker-manager", "--namespace", k.namespace, "-o", `jsonpath={.data.ca\.crt}`))), 0o600))
	host := k.kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
	// n1 has no user namespaces for pods.
	k.flags = []string{"--node-selector", "kubernetes.io/hostname=n2", "--cert-path", cert, "--auth-token", token, "--cluster-host", host, "--namespace", k.namespace}
	return k
}

func (k *kubeSite) decode(text string) string {
	k.t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	testenv.Must(k.t, err)
	return string(data)
}

func (k *kubeSite) kubectl(args ...string) string {
	k.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(k.t.Context()), "kubectl", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		k.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out)
}

// image gives the nodes an image whose cl-worker is this program, and returns its name.
func (k *kubeSite) image() string {
	k.t.Helper()
	program, err := os.ReadFile(standInPath(k.t))
	testenv.Must(k.t, err)
	name := "cl-slurm.example/" + k.namespace + ":1"
	layer := imagetest.GzipLayer(k.t, imagetest.TarStream(k.t, imagetest.Executable("bin/cl-worker", string(program)), imagetest.Symlink("bin/cl-worker-manager", "cl-worker")))
	archive := filepath.Join(k.t.TempDir(), "image.tar")
	imagetest.WriteSaved(k.t, archive, true, map[string]v1.Image{name: imagetest.Image(k.t, v1.Config{Env: []string{"PATH=/bin"}}, layer)})
	if out, err := exec.CommandContext(k.t.Context(), os.Getenv("CLTEST_KUBERNETES"), "load", archive).CombinedOutput(); err != nil {
		k.t.Fatalf("load the image: %v: %s", err, out)
	}
	k.t.Cleanup(func() {
		if out, err := exec.CommandContext(context.WithoutCancel(k.t.Context()), os.Getenv("CLTEST_KUBERNETES"), "unload", name).CombinedOutput(); err != nil {
			k.t.Errorf("unload the image: %v: %s", err, out)
		}
	})
	return name
}

// manageInPod returns the output of a check in a pod with the manager's account, without flags for the cluster.
func (k *kubeSite) manageInPod(image, server string) string {
	k.t.Helper()
	k.kubectl("run", "manager", "--namespace", k.namespace, "--image", image, "--restart=Never",
		"--env", "CODALAB_USERNAME=ann", "--env", "CODALAB_PASSWORD=secret",
		"--overrides", `{"spec":{"serviceAccountName":"cl-worker-manager"}}`, "--command", "--",
		"cl-worker-manager", "--server", server, "kubernetes", "--check")
	k.kubectl("wait", "pod/manager", "--namespace", k.namespace, "--for=jsonpath={.status.containerStatuses[0].state.terminated}", "--timeout="+testenv.WaitLimit.String())
	out := k.kubectl("logs", "manager", "--namespace", k.namespace)
	k.kubectl("delete", "pod", "manager", "--namespace", k.namespace)
	return out
}

// TestWorkersRunInPodsOfARealKubernetes runs a manager as CodaLab's page starts it: workers come for bundles, run them, and
// go. One disappears, and its bundle runs in another.
func TestWorkersRunInPodsOfARealKubernetes(t *testing.T) {
	t.Parallel()
	k := newKubeSite(t)
	web := startServerAt(t, filepath.Join(t.TempDir(), "server"), "10.79.0.1:0")
	api := connectAnn(t, web.URL)
	env := map[string]string{"CODALAB_USERNAME": "ann", "CODALAB_PASSWORD": "secret"}
	image := k.image()
	manage := func(ctx context.Context, more ...string) (string, error) {
		args := append([]string{"--server", web.URL, "--min-workers", "0", "--max-workers", "2", "--worker-idle-seconds", "3", "--worker-image", image, "kubernetes"}, k.flags...)
		return runWith(ctx, env, append(append(args, "--cpus", "1", "--gpus", "0", "--memory-mb", "128"), more...)...)
	}
	out, err := manage(t.Context(), "--check")
	if err != nil || strings.Contains(out, " no ") || !strings.Contains(out, "create pods") {
		t.Fatalf("check: %v\n%s", err, out)
	}
	if out := k.manageInPod(image, web.URL); !strings.Contains(out, "https://10.79.1.1") || !strings.Contains(out, "\ncreate pods") || strings.Contains(out, " no ") {
		t.Errorf("in a pod: %s", out)
	}
	uuids := stage(t, api, 3, codalab.Metadata{"request_memory": "100m"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var printed string
	go func() {
		var err error
		printed, err = manage(ctx)
		ended <- err
	}()
	t.Cleanup(func() {
		if stop(); t.Failed() {
			t.Logf("the manager: %v\n%s\nthe pods:\n%s", <-ended, printed, k.kubectl("get", "pods", "--namespace", k.namespace))
		}
	})
	for _, uuid := range uuids {
		awaitState(t, api, uuid, codalab.StateReady)
	}
	testenv.Await(t, "the workers are gone", func() bool {
		out, err = manage(t.Context(), "status")
		testenv.Must(t, err)
		return strings.Contains(out, "no workers\n")
	}, &out)
	var pods string
	succeeded := regexp.MustCompile(`^(cl-worker-[0-9a-f]{32} Succeeded\n){1,2}$`)
	testenv.Await(t, "the pods have succeeded", func() bool {
		pods = k.kubectl("get", "pods", "--namespace", k.namespace, "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.phase}{"\n"}{end}`)
		return succeeded.MatchString(pods)
	}, &pods)
	out, err = manage(t.Context(), "logs", uuids[0])
	if err != nil || !strings.Contains(out, "the worker takes "+uuids[0]) {
		t.Errorf("logs: %v: %s", err, out)
	}
	last := awaitState(t, api, stage(t, api, 1, codalab.Metadata{"name": "sleep", "request_memory": "100m"})[0], codalab.StateRunning)
	stop()
	err = <-ended
	close(ended)
	testenv.Must(t, err)
	if out, err = manage(t.Context(), "kill", last.Metadata.String("remote")); err == nil || !strings.Contains(out, "its log is removed with it") {
		t.Errorf("kill: %v: %s", err, out)
	}
	if n := strings.Count(printed, "started a worker"); n != 3 || strings.Contains(printed, "level=ERROR") || !strings.Contains(printed, "--auth-token-file FILE hides it") {
		t.Errorf("%d workers were started:\n%s", n, printed)
	}
}

// TestLogOfAPodThatHasNotStartedSaysItsState asks for the log of a worker whose image does not exist.
func TestLogOfAPodThatHasNotStartedSaysItsState(t *testing.T) {
	t.Parallel()
	k := newKubeSite(t)
	web := startServerAt(t, filepath.Join(t.TempDir(), "server"), "10.79.0.1:0")
	env := map[string]string{"CODALAB_USERNAME": "ann", "CODALAB_PASSWORD": "secret"}
	call := func(words ...string) (string, error) {
		args := append([]string{"--server", web.URL, "--min-workers", "1", "--once", "--worker-image", "cl-slurm.example/none:1", "kubernetes"}, k.flags...)
		return runWith(t.Context(), env, append(args, words...)...)
	}
	out, err := call()
	if err != nil {
		t.Fatalf("start: %v: %s", err, out)
	}
	out, err = call("status")
	row := regexp.MustCompile(`(?m)^([0-9a-f]{8})  -    Pending `).FindStringSubmatch(out)
	if err != nil || row == nil {
		t.Fatalf("status: %v: %s", err, out)
	}
	out, err = call("logs", row[1])
	if err == nil || !regexp.MustCompile(`^worker host-cl-worker-[0-9a-f]{32} has printed nothing yet: it is Pending`).MatchString(err.Error()) {
		t.Errorf("logs: %v: %s", err, out)
	}
}
