// Package chart tests the Helm chart of cl-worker-manager. It renders the chart with Helm's own code.
package chart

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

const dir = "cl-worker-manager"

// values are those of a release, as in a file for helm --values.
const values = `
server: https://codalab.example.org
tokenSecret: codalab-token
image: registry.example.org/lab/cl-worker:1
imagePullSecrets: [registry]
managerFlags: [--worker-idle-seconds=60]
kubernetesFlags: ["--exit-after-num-failed=3"]
tolerations: [{key: infra, operator: Exists}]
nodeSelector: {pool: infra}
worker:
  cpus: 4
  gpus: 1
  memoryMB: 16000
  tag: gpu
  nodeSelector: {pool: gpu}
  tolerations: ["lab=ml:NoSchedule"]
  priorityClass: low
  seccompUnconfined: true
  deviceResources: [smarter-devices/fuse, smarter-devices/net_tun]
  volume: pd
  runsInPods: true
`

// render returns the manifests of a release, as helm template does.
func render(release, text string) (string, error) {
	c, err := loader.Load(dir)
	if err != nil {
		return "", err
	}
	given, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		return "", err
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: release, Namespace: "lab", IsInstall: true}, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range []string{"rbac.yaml", "deployment.yaml"} {
		fmt.Fprintf(&out, "---\n%s\n", files[dir+"/templates/"+name])
	}
	return out.String(), nil
}

func mustRender(t *testing.T, text string) string {
	t.Helper()
	manifests, err := render("pilots", text)
	if err != nil {
		t.Fatal(err)
	}
	return manifests
}

// object is the part of a manifest that the tests look at.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Rules    []struct {
		APIGroups, Resources, Verbs []string
	}
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct{ Command, Args []string }
			}
		}
	}
}

// objects returns the objects of manifests, by kind and name.
func objects(t *testing.T, manifests string) map[string]object {
	t.Helper()
	found := map[string]object{}
	for _, text := range strings.Split("\n"+manifests, "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if o.Kind != "" {
			found[o.Kind+" "+o.Metadata.Name] = o
		}
	}
	return found
}

func TestHelmFindsNoFault(t *testing.T) {
	t.Parallel()
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range lint.All(dir, given, "lab", true).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

// TestRightsAreThoseOfTheDocumentation: the manifests in docs/kubernetes are for managers without Helm.
func TestRightsAreThoseOfTheDocumentation(t *testing.T) {
	t.Parallel()
	ours := objects(t, mustRender(t, values))
	for _, role := range []struct{ page, documented, name string }{
		{"rbac.yaml", "cl-worker-manager", "pilots"}, {"runs.yaml", "cl-worker", "pilots-worker"},
	} {
		page, err := os.ReadFile("../../docs/kubernetes/" + role.page)
		if err != nil {
			t.Fatal(err)
		}
		want := objects(t, string(page))["Role "+role.documented].Rules
		if got := ours["Role "+role.name].Rules; len(want) == 0 || cmp.Diff(want, got) != "" {
			t.Errorf("%s: %s", role.page, cmp.Diff(want, got))
		}
	}
}

// TestFlagsAreThoseOfTheProgram starts cl-worker-manager with the arguments of the deployment.
func TestFlagsAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "cl-worker-manager")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-o", program, "./cmd/cl-worker-manager").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, text := range map[string]string{"all": values, "few": "server: http://s:1\nloginSecret: x\nimage: i\n"} {
		containers := objects(t, mustRender(t, text))["Deployment pilots"].Spec.Template.Spec.Containers
		if len(containers) != 1 || cmp.Diff(containers[0].Command, []string{"cl-worker-manager"}) != "" {
			t.Fatalf("%s: the containers are %+v", name, containers)
		}
		args := append(containers[0].Args, "--dry-run", "--cluster-host", "https://127.0.0.1:1", "--auth-token", "x", "--cert-path", "/dev/null")
		cmd := exec.CommandContext(t.Context(), program, args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil || !strings.Contains(stdout.String(), "cl-slurm/manager") {
			t.Errorf("%s: %q: %v: %s%s", name, args, err, stdout.String(), stderr.String())
		}
	}
}

// TestManagerHasATokenInAFileOrALoginInVariables: root owns the file, and only the pod's group can read it.
func TestManagerHasATokenInAFileOrALoginInVariables(t *testing.T) {
	t.Parallel()
	const rest = "server: http://s:1\nimage: i\n"
	token, login := mustRender(t, rest+"tokenSecret: x\n"), mustRender(t, rest+"loginSecret: x\n")
	for _, line := range []string{
		"- --token-file=/etc/codalab/token", "- {name: token, mountPath: /etc/codalab, readOnly: true}", "fsGroup: 65532",
		"secret: {secretName: x, defaultMode: 0400, items: [{key: token, path: token}]}",
	} {
		if !strings.Contains(token, line) || strings.Contains(login, line) {
			t.Errorf("%s is not in the one, or in the other:\n%s\n%s", line, token, login)
		}
	}
	if strings.Contains(token, "CODALAB_") || strings.Count(login, "secretKeyRef: {name: x, key: ") != 2 {
		t.Errorf("%s\n%s", token, login)
	}
}

func TestValuesThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	const good = "server: http://s:1\nloginSecret: x\nimage: i\n"
	for name, test := range map[string]struct{ release, values, want string }{
		"no server":         {"pilots", "loginSecret: x\nimage: i\n", "server"},
		"no login":          {"pilots", "server: http://s:1\nimage: i\n", "give tokenSecret, a Secret with a token of cl-server"},
		"two logins":        {"pilots", good + "tokenSecret: t\n", "tokenSecret and loginSecret: give one of them"},
		"no image":          {"pilots", "server: http://s:1\nloginSecret: x\n", "image"},
		"unknown":           {"pilots", good + "wokers: 3\n", "wokers"},
		"unknown of worker": {"pilots", good + "worker: {gpu: 1}\n", "gpu"},
		"no number":         {"pilots", good + "worker: {gpus: many}\n", "gpus"},
		"pods, no volume":   {"pilots", good + "worker: {runsInPods: true}\n", "worker.runsInPods needs worker.volume"},
		"long name":         {strings.Repeat("p", 21), good, "the release's name may have 20 characters"},
	} {
		if out, err := render(test.release, test.values); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}

// TestAPIServerTakesTheManifests gives them to the API server of scripts/kubernetes.
func TestAPIServerTakesTheManifests(t *testing.T) {
	t.Parallel()
	if os.Getenv("CLTEST_KUBERNETES") == "" {
		if strings.Contains(os.Getenv("CLTEST_REQUIRE"), "kubernetes") {
			t.Fatal("CLTEST_KUBERNETES is not set")
		}
		t.Skip(`there is no Kubernetes: scripts/kubernetes up, then eval "$(scripts/kubernetes env)"`)
	}
	namespace := fmt.Sprintf("chart-%d", os.Getpid())
	kubectl(t, nil, "create", "namespace", namespace)
	t.Cleanup(func() { kubectl(t, nil, "delete", "namespace", namespace, "--wait=false") })
	for _, text := range []string{values, "server: http://s:1\nloginSecret: x\nimage: i\n"} {
		manifests := strings.ReplaceAll(mustRender(t, text), "namespace: lab", "namespace: "+namespace)
		out := kubectl(t, strings.NewReader(manifests), "-n", namespace, "apply", "--validate=strict", "-f", "-")
		if !strings.Contains(out, "deployment.apps/pilots ") {
			t.Errorf("kubectl says %s", out)
		}
	}
}

func kubectl(t *testing.T, stdin io.Reader, args ...string) string {
	t.Helper()
	cmd := exec.Command("kubectl", args...) // the test's context has ended in a clean-up
	cmd.Stdin = stdin
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %q: %v: %s", args, err, out)
	}
	return string(out)
}
