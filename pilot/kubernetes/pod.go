package kubernetes

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cl-slurm/cl-slurm/pilot"
)

// The labels of pods.
const (
	// AppLabel marks the pods of workers, as CodaLab's own manager does (kubernetes_worker_manager.py: start_worker_job).
	AppLabel = "app"
	// ManagerLabel has the name of a pod's manager.
	ManagerLabel = "cl-slurm/manager"

	appName = "cl-worker"
	// prefix begins the names of pods.
	prefix = appName + "-"
	// container is the name of a pod's only container.
	container = "worker"
)

// DefaultGPUResource is the name of GPUs in requests, and the key of the taint on nodes that have some: NVIDIA's
// device plugin and the clouds use it for both.
const DefaultGPUResource = "nvidia.com/gpu"

// Settings describe the pods of a manager. An empty field sets nothing.
type Settings struct {
	// Image is the worker's image, PullSecrets the Secrets with logins at its registry.
	Image       string
	PullSecrets []string
	CPUs, GPUs  int64
	MemoryMB    int64
	// GPUResource is the name of GPUs in requests; empty means DefaultGPUResource.
	GPUResource string
	// Devices are resources of device plugins of which a pod gets one each: /dev/fuse, without which a worker unpacks
	// images, and /dev/net/tun, without which bundles have no network of their own.
	Devices []string
	// Unconfined turns off the filter of system calls, where nodes have one for each pod.
	Unconfined                    bool
	NodeSelector                  map[string]string
	Tolerations                   []corev1.Toleration
	ServiceAccount, PriorityClass string
	// WorkDirPrefix is the directory in which a volume is mounted: that of the claim <Volume>-claim, or else an
	// empty one of the pod with at most WorkDirBytes.
	WorkDirPrefix string
	Volume        string
	WorkDirBytes  int64
	// RunsInPods is set if the worker runs each bundle in a pod of its own (cl-worker --bundle-runtime kubernetes). All
	// runs of the worker have CPUs, GPUs and MemoryMB together, and the worker's own pod needs little. The work
	// directory has to be on a Volume then, and the ServiceAccount needs the right to create pods.
	RunsInPods bool
	// Worker is the worker's command line without its work directory, login, runtime and GPUs, which the backend adds.
	Worker pilot.Worker
}

// scratch is the directory of the worker's files below the prefix (kubernetes_worker_manager.py: start_worker_job). Workers
// on one volume share it: they share downloads, too, and each has a directory of its own there (docs/worker.md).
const scratch = "codalab-worker-scratch"

// The keys of a Secret.
const (
	tokenKey    = "token"
	userKey     = "user"
	passwordKey = "password"
)

// graceSeconds is the time between TERM and KILL. A worker needs half of it to give its runs back (docs/worker.md).
const graceSeconds = 60

// pod returns a pilot's pod.
func (b *Backend) pod(name string, l login) *corev1.Pod {
	s := b.Settings
	no, grace, runs := false, int64(graceSeconds), s.RunsInPods
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: b.Cluster.Namespace,
			Labels:      map[string]string{AppLabel: appName, ManagerLabel: b.Manager},
			Annotations: keepNode(),
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken:  &runs,
			EnableServiceLinks:            &no,
			NodeSelector:                  s.NodeSelector,
			Tolerations:                   s.tolerations(),
			ServiceAccountName:            s.ServiceAccount,
			PriorityClassName:             s.PriorityClass,
			ImagePullSecrets:              s.pullSecrets(),
			SecurityContext:               s.podSecurity(),
			HostUsers:                     s.hostUsers(),
			Containers: []corev1.Container{{
				Name: container, Image: s.Image,
				Command:         s.command(name),
				Env:             append(loginEnvironment(name, l), s.environment()...),
				Resources:       s.resources(),
				SecurityContext: s.containerSecurity(),
				VolumeMounts:    []corev1.VolumeMount{{Name: "work", MountPath: s.WorkDirPrefix}},
			}},
			Volumes: []corev1.Volume{s.workVolume()},
		},
	}
}

// keepNode returns the annotations with which autoscalers remove no node below a worker: those of cluster-autoscaler
// (FAQ: "What types of pods can prevent CA from removing a node?") and Karpenter ("Pod-Level Controls"). A pod has them
// from its creation, so that a manager needs no right to change pods. A pod that does not start keeps a node for its
// patience at most, because the manager ends it then. The autoscalers ignore pods that have ended.
func keepNode() map[string]string {
	return map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
}

// command returns the worker's command line.
func (s Settings) command(name string) []string {
	w := s.Worker
	w.WorkDir = path.Join(s.WorkDirPrefix, scratch)
	if s.RunsInPods {
		return w.Command(name, "--bundle-runtime", "kubernetes", "--kubernetes-cpus", strconv.FormatInt(s.CPUs, 10),
			"--kubernetes-gpus", strconv.FormatInt(s.GPUs, 10), "--max-memory", fmt.Sprintf("%dm", s.MemoryMB))
	}
	gpus := "ALL" // those of the container
	if s.GPUs == 0 {
		gpus = "NONE"
	}
	return w.Command(name, "--gpuset", gpus)
}

// ownMemoryMB is the memory of a worker whose runs are in other pods.
const ownMemoryMB = 512

// resources returns requests and limits, which are equal but for one thing: a worker of one CPU requests half of
// one, because the cluster's own pods leave no whole one on a node of one CPU (kubernetes_worker_manager.py:
// start_worker_job).
func (s Settings) resources() corev1.ResourceRequirements {
	if s.RunsInPods {
		s.CPUs, s.GPUs, s.MemoryMB, s.Devices = 1, 0, ownMemoryMB, nil
	}
	limits := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(s.CPUs, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(s.MemoryMB<<20, resource.BinarySI),
	}
	if s.GPUs > 0 {
		limits[corev1.ResourceName(s.gpuResource())] = *resource.NewQuantity(s.GPUs, resource.DecimalSI)
	}
	for _, name := range s.Devices {
		limits[corev1.ResourceName(name)] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	requests := limits.DeepCopy()
	if s.CPUs == 1 {
		requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(500, resource.DecimalSI)
	}
	return corev1.ResourceRequirements{Limits: limits, Requests: requests}
}

// environment tells a worker its share of its node's CPUs, which the container does not see, and a worker that creates pods
// its own pod and namespace.
func (s Settings) environment() []corev1.EnvVar {
	if !s.RunsInPods {
		return []corev1.EnvVar{{Name: "CL_WORKER_MAX_CPUS", Value: strconv.FormatInt(s.CPUs, 10)}}
	}
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	return []corev1.EnvVar{field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")}
}

func (s Settings) gpuResource() string {
	if s.GPUResource == "" {
		return DefaultGPUResource
	}
	return s.GPUResource
}

// tolerations returns the tolerations, and with GPUs that of the taint on their nodes.
func (s Settings) tolerations() []corev1.Toleration {
	if s.GPUs == 0 {
		return s.Tolerations
	}
	return append(slices.Clone(s.Tolerations), corev1.Toleration{Key: s.gpuResource(), Operator: corev1.TolerationOpExists})
}

func (s Settings) pullSecrets() []corev1.LocalObjectReference {
	var refs []corev1.LocalObjectReference
	for _, name := range s.PullSecrets {
		refs = append(refs, corev1.LocalObjectReference{Name: name})
	}
	return refs
}

// workVolume returns the volume of the work directory (kubernetes_worker_manager.py: start_worker_job).
func (s Settings) workVolume() corev1.Volume {
	v := corev1.Volume{Name: "work"}
	if s.Volume != "" {
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim(s.Volume)}
		return v
	}
	v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	if s.WorkDirBytes > 0 {
		v.EmptyDir.SizeLimit = resource.NewQuantity(s.WorkDirBytes, resource.BinarySI)
	}
	return v
}

// claim returns the name of a volume's claim.
func claim(volume string) string { return fmt.Sprintf("%s-claim", volume) }

// login is a worker's login at the server: a token of its own, or else the user's name and password.
type login struct{ token, user, password string }

// login returns the login of a worker with this token.
func (b *Backend) login(token string) login {
	if token != "" {
		return login{token: token}
	}
	return login{user: b.User, password: b.Password}
}

// loginEnvironment returns the variables of a worker's login, which name the pod's Secret. A file of a Secret would not do:
// a user other than root can only read it if its group can, and cl-worker refuses such a file.
func loginEnvironment(name string, l login) []corev1.EnvVar {
	from := func(variable, key string) corev1.EnvVar {
		source := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}
		return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: source}}
	}
	if l.token != "" {
		return []corev1.EnvVar{from("CODALAB_WORKER_TOKEN", tokenKey)}
	}
	return []corev1.EnvVar{from("CODALAB_USERNAME", userKey), from("CODALAB_PASSWORD", passwordKey)}
}

// secret returns the Secret of a pod, which is removed together with it.
func secret(pod *corev1.Pod, l login) *corev1.Secret {
	data := map[string]string{tokenKey: l.token}
	if l.token == "" {
		data = map[string]string{userKey: l.user, passwordKey: l.password}
	}
	yes := true
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Immutable: &yes, StringData: data,
	}
}

// ParseToleration reads a toleration as kubectl writes taints: key, key=value, key:effect or key=value:effect. Without an
// effect it tolerates all effects, without a value all values.
func ParseToleration(text string) (corev1.Toleration, error) {
	taint, effect, _ := strings.Cut(text, ":")
	key, value, valued := strings.Cut(taint, "=")
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Value: value, Effect: corev1.TaintEffect(effect)}
	if valued {
		t.Operator = corev1.TolerationOpEqual
	}
	effects := []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if key == "" || !slices.Contains(effects, t.Effect) {
		return t, fmt.Errorf("%q is no toleration: want key, key=value, key:effect or key=value:effect, with the effect NoSchedule, PreferNoSchedule or NoExecute", text)
	}
	return t, nil
}
