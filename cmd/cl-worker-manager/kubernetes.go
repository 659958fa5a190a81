package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
	"github.com/cl-slurm/cl-slurm/pilot/kubernetes"
)

// inKubernetes is the service kubernetes (kubernetes_worker_manager.py: add_arguments_to_subparser).
type inKubernetes struct {
	access               kubeclient.Access
	settings             kubernetes.Settings
	runtime, workDirSize string
	labels, tolerations  []string
}

func (*inKubernetes) describe() (name, short, long string) {
	return "kubernetes", "Run workers in pods of a Kubernetes cluster",
		`kubernetes runs each worker in a pod of a Kubernetes cluster. It starts as many at once
as the staged bundles need, and none while the cluster or the server does not answer.

It finds the cluster as kubectl does: by --kubeconfig, KUBECONFIG or ~/.kube/config, or
in a pod by the pod's service account. With --cluster-host the address, a token and the
certificate of the cluster's authority are given by flags.`
}

func (k *inKubernetes) addFlags(flags *pflag.FlagSet) {
	a, s := &k.access, &k.settings
	flags.StringVar(&k.runtime, "bundle-runtime", runtimeDocker, "run bundles in containers of the worker's pod (docker), or each in a pod of its own (kubernetes): `runtime`")
	flags.StringVar(&a.Host, "cluster-host", "", "`address` of the cluster's API server (default: that of the kubeconfig, or of the pod's service account)")
	flags.StringVar(&a.Token, "auth-token", "", "`token` for the cluster, which other users of this host can see; --auth-token-file hides it")
	flags.StringVar(&a.TokenFile, "auth-token-file", "", "`file` with a token for the cluster")
	flags.StringVar(&a.CertPath, "cert-path", "", "`file` with the certificate of the cluster's authority")
	flags.StringVar(&a.Cert, "cert", "", "the `text` of that certificate, in place of --cert-path")
	flags.StringVar(&a.Kubeconfig, "kubeconfig", "", "`file` with the cluster and the login, as kubectl reads it")
	flags.StringVar(&a.Context, "context", "", "`context` of the kubeconfig (default: its current one)")
	flags.StringVar(&a.Namespace, "namespace", "", "`namespace` of the pods (default: that of the context or of this pod, or default)")
	flags.StringVar(&s.Volume, "nfs-volume-name", "", "`name` of a volume for work directories: the claim NAME-claim is mounted at --worker-work-dir-prefix")
	flags.StringVar(&k.workDirSize, "work-dir-size", "50g", "most bytes of a work directory without such a volume; a worker with more is evicted (`size`)")
	flags.StringSliceVar(&k.labels, "node-selector", nil, "a `label` that the nodes have to have, as KEY=VALUE; may be repeated")
	flags.StringArrayVar(&k.tolerations, "toleration", nil, "a `taint` of nodes that is tolerated, as KEY[=VALUE][:EFFECT]; may be repeated. That of GPU nodes is tolerated with --gpus")
	flags.StringVar(&s.GPUResource, "gpu-resource", kubernetes.DefaultGPUResource, "`name` of GPUs in the cluster")
	flags.StringSliceVar(&s.Devices, "device-resource", nil, "`name` under which a device plugin offers /dev/fuse or /dev/net/tun, of which each worker gets one; may be repeated")
	flags.BoolVar(&s.Unconfined, "seccomp-unconfined", false, "turn off the filter of system calls that nodes with seccompDefault give each pod")
	flags.StringVar(&s.ServiceAccount, "service-account", "", "service `account` of the pods (default: the namespace's)")
	flags.StringVar(&s.PriorityClass, "priority-class", "", "priority `class` of the pods (default: the cluster's)")
	flags.StringSliceVar(&s.PullSecrets, "image-pull-secret", nil, "`name` of a secret with a login at the registry of the workers' image; may be repeated")
}

// The runtimes of bundles (codalab/common.py: BundleRuntime). To CodaLab's users docker means "in the worker's own pod".
const (
	runtimeDocker     = "docker"
	runtimeKubernetes = "kubernetes"
)

// defaultPrefix is the default of --worker-work-dir-prefix in a pod (kubernetes_worker_manager.py: start_worker_job).
const defaultPrefix = "/tmp"

func (k *inKubernetes) open(_ context.Context, w cloudWorkers) (cloudBackend, error) {
	s, err := k.complete(w)
	if err != nil {
		return nil, err
	}
	a := k.access
	a.UserAgent = "cl-worker-manager"
	c, err := kubernetes.Connect(a)
	if errors.Is(err, kubeclient.ErrNoCluster) {
		err = fmt.Errorf("%w: give --kubeconfig and --context, or --cluster-host with --auth-token-file and --cert-path", err)
	}
	if err != nil {
		return nil, err
	}
	return &kubernetes.Backend{Cluster: c, Manager: w.Mark, Settings: s, User: w.User, Password: w.Password, Now: w.Now}, nil
}

// complete returns the settings of pods.
func (k *inKubernetes) complete(w cloudWorkers) (kubernetes.Settings, error) {
	s := k.settings
	s.Image, s.CPUs, s.GPUs, s.MemoryMB, s.Worker = w.Image, w.CPUs, w.GPUs, w.MemoryMB, w.Worker
	s.WorkDirPrefix = path.Clean(cmp.Or(w.WorkDirPrefix, defaultPrefix))
	if !slices.Contains([]string{runtimeDocker, runtimeKubernetes}, k.runtime) {
		return s, fmt.Errorf("--bundle-runtime %q: want %s or %s", k.runtime, runtimeDocker, runtimeKubernetes)
	}
	s.RunsInPods, s.NodeSelector = k.runtime == runtimeKubernetes, map[string]string{}
	for _, label := range k.labels {
		key, value, ok := strings.Cut(label, "=")
		if !ok || key == "" {
			return s, fmt.Errorf("--node-selector %q: want KEY=VALUE", label)
		}
		s.NodeSelector[key] = value
	}
	for _, text := range k.tolerations {
		t, err := kubernetes.ParseToleration(text)
		if err != nil {
			return s, fmt.Errorf("--toleration: %w", err)
		}
		s.Tolerations = append(s.Tolerations, t)
	}
	var err error
	if s.WorkDirBytes, err = codalab.ParseSize(k.workDirSize); err != nil || s.WorkDirBytes <= 0 {
		return s, fmt.Errorf("--work-dir-size %q: want a size above 0, such as 50g", k.workDirSize)
	}
	switch {
	case !strings.HasPrefix(s.WorkDirPrefix, "/") || s.WorkDirPrefix == "/":
		return s, fmt.Errorf("--worker-work-dir-prefix %q: want an absolute path below / in the pod", w.WorkDirPrefix)
	case s.RunsInPods && s.Volume == "":
		return s, errors.New("--bundle-runtime kubernetes needs --nfs-volume-name: the pods of bundles and of their worker share a volume")
	}
	return s, nil
}

func (k *inKubernetes) exposed() []string {
	if k.access.Token == "" {
		return nil
	}
	return []string{"other users of this host can see the token of --auth-token in the list of processes; --auth-token-file FILE hides it"}
}

// keepsImages says that nodes may have the image without a registry: kind load image-archive, ctr images import.
func (*inKubernetes) keepsImages() {}
