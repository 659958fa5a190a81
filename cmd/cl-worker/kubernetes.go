package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/pods"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/onnode"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
	"github.com/cl-slurm/cl-slurm/worker/local"
)

// kubernetesFlags are the flags for --bundle-runtime kubernetes: four of CodaLab's own worker, and ours.
type kubernetesFlags struct {
	host, token, certPath, cert string
	namespace, gpuResource      string
	cpus, gpus                  int
}

func (k *kubernetesFlags) add(s *pflag.FlagSet) {
	s.StringVar(&k.host, "kubernetes-cluster-host", "", "`address` of the API server (default: that of KUBECONFIG or ~/.kube/config, or of the cluster around this pod)")
	s.StringVar(&k.token, "kubernetes-auth-token", "", "bearer `token` for --kubernetes-cluster-host, which other users of this host can read here")
	s.StringVar(&k.certPath, "kubernetes-cert-path", "", "`file` with the certificate of that cluster's authority")
	s.StringVar(&k.cert, "kubernetes-cert", "", "the certificate itself (`text`)")
	s.StringVar(&k.namespace, "kubernetes-namespace", "", "`namespace` of the runs' pods (default: that of the context or of this pod)")
	s.IntVar(&k.cpus, "kubernetes-cpus", 0, "CPUs for all runs together (`number`; default: those of this host)")
	s.IntVar(&k.gpus, "kubernetes-gpus", 0, "GPUs for all runs together (`number`)")
	s.StringVar(&k.gpuResource, "kubernetes-gpu-resource", pods.DefaultGPUResource, "`name` of GPUs in requests of pods")
}

// check fails for flags that do not fit to the runtime or to each other.
func (f *flags) checkKubernetes() error {
	k := f.kubernetes
	if f.runtime != runtimeKubernetes {
		if k != (kubernetesFlags{gpuResource: k.gpuResource}) {
			return errors.New("the --kubernetes flags need --bundle-runtime kubernetes")
		}
		return nil
	}
	switch {
	case f.network == plan.NetworkOfHost:
		return errors.New("--bundle-network host: a run's pod never has the network of its node")
	case f.maxImage.bytes > 0, f.maxImages.bytes > 0:
		return errors.New("--max-image-size and --max-image-cache-size: with --bundle-runtime kubernetes, the nodes pull and remove images by the cluster's own limits")
	case f.cpuset != allCPUs, f.gpuset != "ALL" && f.gpuset != "NONE" && f.gpuset != "":
		return errors.New("--cpuset and --gpuset name CPUs and GPUs of this host: with --bundle-runtime kubernetes, give --kubernetes-cpus and --kubernetes-gpus")
	case k.cpus < 0, k.gpus < 0:
		return errors.New("--kubernetes-cpus and --kubernetes-gpus: want 0 or more")
	case k.gpuResource == "":
		return errors.New("--kubernetes-gpu-resource: want a name such as " + pods.DefaultGPUResource)
	case k.host == "" && (k.token != "" || k.certPath != "" || k.cert != ""):
		return errors.New("--kubernetes-auth-token, --kubernetes-cert-path and --kubernetes-cert need --kubernetes-cluster-host")
	}
	return nil
}

// kubernetesWithin bounds the questions to the API server at the worker's start.
const kubernetesWithin = time.Minute

// findKubernetes finds the cluster and the volume that this worker shares with the pods of runs.
func (w *standalone) findKubernetes(ctx context.Context) error {
	if w.runtime != runtimeKubernetes {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, kubernetesWithin)
	defer cancel()
	k := w.flags.kubernetes
	if k.token != "" {
		w.log.WarnContext(ctx, "other users of this host can read the token of --kubernetes-auth-token; a kubeconfig, or the service account of the worker's pod, is safer")
	}
	own := ""
	if w.Getenv("KUBERNETES_SERVICE_HOST") != "" { // the kubelet sets it in each pod
		own = cmp.Or(w.Getenv("POD_NAME"), w.host)
	}
	access := kubeclient.Access{
		Host: k.host, Token: k.token, CertPath: k.certPath, Cert: k.cert, UserAgent: "cl-worker",
		Namespace: cmp.Or(k.namespace, w.Getenv("POD_NAMESPACE")),
	}
	if inside, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace"); err == nil && own != "" {
		access.Namespace = cmp.Or(access.Namespace, strings.TrimSpace(string(inside)))
	}
	settings, err := pods.Find(ctx, access, own, w.dirs.WorkDir)
	if err != nil {
		return fmt.Errorf("--bundle-runtime kubernetes: %w", err)
	}
	settings.GPUResource = k.gpuResource
	w.pods = &settings
	for _, dir := range []string{w.dirs.Own(), w.scratch()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the worker's directory: %w", err)
		}
	}
	if err := settings.Save(w.podsFile()); err != nil {
		return err
	}
	return w.findPodsShare()
}

// podsFile is the file of the settings for `cl-worker exec`. It may have a token.
func (w *standalone) podsFile() string { return filepath.Join(w.dirs.Own(), "kubernetes.json") }

// scratch is the directory of temporary files of runs, on the volume that their pods share.
func (w *standalone) scratch() string { return filepath.Join(w.dirs.Own(), "scratch") }

// configurePods changes the queue of a worker whose runs are pods. A run whose pod was evicted or whose node was lost
// begins again.
func (w *standalone) configurePods(q *config.Queue) {
	q.Runtime, q.Scratch, q.RetryBegun = runtimes.Kubernetes, w.scratch(), plan.RetryOnPlatform
}

// podKillWait is the time between TERM and KILL for the process that waits for a pod: the kubelet takes some seconds for
// the pod's end.
const podKillWait = 45 * time.Second

// podsVariable names podsFile to `cl-worker exec`.
const podsVariable = "CL_WORKER_KUBERNETES"

// jobEnv returns the environment of jobs.
func (w *standalone) jobEnv() []string {
	env, passed := onnode.EngineEnv(w.Process), []string{onnode.ClusterVariable}
	if w.pods != nil {
		env = append(env, podsVariable+"="+w.podsFile())
		passed = append(passed, "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
	}
	for _, name := range passed {
		if value := w.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// containers returns the runtime of `cl-worker exec`: pods in a worker with --bundle-runtime kubernetes.
func containers(p program.Process) (container.Runtime, error) {
	file := p.Getenv(podsVariable)
	if file == "" {
		return onnode.Containers(p)
	}
	settings, err := pods.Load(file)
	if err != nil {
		return nil, err
	}
	r := pods.Runtime{Settings: settings}
	if text := p.Getenv("SLURM_CPUS_PER_TASK"); text != "" { // worker/local sets both
		if r.CPUs, err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("SLURM_CPUS_PER_TASK=%q: want a number", text)
		}
	}
	if gpus := p.Getenv("SLURM_JOB_GPUS"); gpus != "" {
		r.GPUs = len(strings.Split(gpus, ","))
	}
	return r, nil
}

// tryPods fails if the API server would take no pod of this worker.
func (w *standalone) tryPods(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, kubernetesWithin)
	defer cancel()
	if err := (pods.Runtime{Settings: *w.pods}).Try(ctx, w.scratch()); err != nil {
		return program.Usage(fmt.Errorf("--bundle-runtime kubernetes: %w", err))
	}
	w.logWeaker(ctx, container.Choice{Runtime: runtimes.Kubernetes}, container.Host{})
	w.log.InfoContext(ctx, "runs are pods", slog.String("namespace", w.pods.Namespace), slog.Int("cpus", len(w.machine.CPUs)),
		slog.Int("gpus", len(w.machine.GPUs)), slog.Int64("memory_bytes", w.machine.Memory))
	return nil
}

// findPodsShare finds the resources for all runs together: those of the flags, and not a node's, whose other pods the
// worker does not know.
func (w *standalone) findPodsShare() error {
	host, err := local.FindMachine()
	if err != nil {
		return err
	}
	cpus := cmp.Or(w.flags.kubernetes.cpus, w.maxCPUs, len(host.CPUs))
	w.machine = local.Machine{Unbound: true, CPUs: slices.Collect(upTo(cpus)), Memory: cmp.Or(w.maxMemory.bytes, host.Memory)}
	for i := range w.flags.kubernetes.gpus {
		w.machine.GPUs = append(w.machine.GPUs, local.GPU{Index: i})
	}
	return nil
}

// upTo returns the numbers from 0 to n-1.
func upTo(n int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}
