package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/kubetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// forPods gives pods a server of this machine's loopback interface, at the address of the cluster's bridge.
func forPods(t *testing.T, address string) string {
	t.Helper()
	target, err := url.Parse(address)
	must(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(kubetest.Host(t), "0"))
	must(t, err)
	forward := httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1})
	must(t, forward.Listener.Close())
	forward.Listener = listener
	forward.Start()
	t.Cleanup(func() {
		forward.CloseClientConnections()
		forward.Close()
	})
	return forward.URL
}

// TestWorkerInAPodRunsBundlesAsPods starts cl-worker as it is shipped in a pod with a claim and a service account, and no other
// means: it finds its cluster, its volume and its login there.
func TestWorkerInAPodRunsBundlesAsPods(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	namespace, dir := kubetest.Namespace(t), testenv.SharedDir(t)
	address := startTestServer(t, filepath.Join(dir, "server"))
	api, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	program, err := os.ReadFile(shipped.Path(t))
	must(t, err)
	plain := scriptImage(t)
	own, err := mutate.AppendLayers(plain, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Directory("tmp"), imagetest.Directory("var/tmp"), imagetest.Executable("cl-worker", string(program)))))
	must(t, err)
	worker, image := kubetest.Load(t, own), kubetest.Load(t, plain)
	volume := filepath.Join(dir, "volume")
	must(t, os.Mkdir(volume, 0o755))
	kubetest.ApplyFile(t, namespace, "../../docs/kubernetes/runs.yaml")
	kubetest.Claim(t, namespace, "lab-claim", volume)
	command, err := json.Marshal([]string{
		"/cl-worker", "--server", forPods(t, address), "--id", "w", "--work-dir", "/work/codalab-worker-scratch", "--bundle-runtime", "kubernetes",
		"--kubernetes-cpus", "2", "--max-memory", "4g", "--gpuset", "NONE", "--pass-down-termination", "--exit-after-num-runs", "1",
	})
	must(t, err)
	kubetest.Apply(t, namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: cl-worker-1}
spec:
  serviceAccountName: cl-worker
  restartPolicy: Never
  containers:
  - name: worker
    image: %s
    command: %s
    env: [{name: CODALAB_USERNAME, value: ann}, {name: CODALAB_PASSWORD, value: %s}, {name: HOME, value: /tmp}]
    volumeMounts: [{name: work, mountPath: /work}]
  volumes: [{name: work, persistentVolumeClaim: {claimName: lab-claim}}]
`, worker, command, scriptPassword))
	ran := runAndWait(t, api, image)
	phase := ""
	testenv.Await(t, "the worker has ended", func() bool {
		phase = kubetest.Kubectl(t, "-n", namespace, "get", "pod", "cl-worker-1", "-o", "jsonpath={.status.phase}")
		return phase == "Succeeded" || phase == "Failed"
	}, &phase)
	log := kubetest.Kubectl(t, "-n", namespace, "logs", "cl-worker-1")
	if ran.State != codalab.StateReady || phase != "Succeeded" || !strings.Contains(log, `msg="runs are pods" namespace=`+namespace+" cpus=2 gpus=0") {
		t.Errorf("the bundle is %s: %v; the worker's pod %s, and says %s", ran.State, ran.Metadata, phase, log)
	}
	if left := kubetest.Kubectl(t, "-n", namespace, "get", "pods", "-l", "app=cl-run", "-o", "name"); left != "" {
		t.Errorf("it left %s", left)
	}
}
