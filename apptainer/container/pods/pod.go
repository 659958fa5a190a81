package pods

import (
	"crypto/rand"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
)

// The labels of pods.
const (
	appLabel = "app"
	appName  = "cl-run"
	// networkLabel tells whether the container requested a network. A site's NetworkPolicy can select by it.
	networkLabel = "cl-slurm/network"
)

const (
	// containerName is the name of a pod's only container.
	containerName = "run"
	// ownMemory is added to the limit for package enter, which is also in the container.
	ownMemory = 16 << 20
	// endMargin is the time between package enter's KILL of the command and the kubelet's of the pod.
	endMargin = 5 * time.Second
)

// podName returns a new name. It has the container's working directory, which is named for the bundle, if that is
// a part of a name (RFC 1123).
func podName(c container.Container) string {
	name := appName
	if base := path.Base(c.WorkingDir()); len(base) <= 40 && regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`).MatchString(base) {
		name += "-" + base
	}
	return name + "-" + strings.ToLower(rand.Text()[:8])
}

// resources returns requests and limits, which are equal but for one thing: a container of one CPU requests half of
// one, because the cluster's own pods leave no whole one on a node of one CPU
// (codalab/worker/runtime/kubernetes_runtime.py: start_bundle_container).
func (r Runtime) resources(memory int64) corev1.ResourceRequirements {
	limits := corev1.ResourceList{}
	if r.CPUs > 0 {
		limits[corev1.ResourceCPU] = *resource.NewQuantity(int64(r.CPUs), resource.DecimalSI)
	}
	if memory > 0 {
		limits[corev1.ResourceMemory] = *resource.NewQuantity(memory+ownMemory, resource.BinarySI)
	}
	if r.GPUs > 0 {
		limits[corev1.ResourceName(r.GPUResource)] = *resource.NewQuantity(int64(r.GPUs), resource.DecimalSI)
	}
	requests := limits.DeepCopy()
	if r.CPUs == 1 {
		requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(500, resource.DecimalSI)
	}
	return corev1.ResourceRequirements{Limits: limits, Requests: requests}
}

// pod returns the pod of a container with these binds.
func (r Runtime) pod(c container.Container, binds []container.Bind) (*corev1.Pod, error) {
	volumes, mounts, err := r.mounts(binds)
	if err != nil {
		return nil, err
	}
	shm := corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
	if c.ShmBytes > 0 {
		shm.SizeLimit = resource.NewQuantity(c.ShmBytes, resource.BinarySI)
	}
	volumes = append(volumes, corev1.Volume{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &shm}})
	mounts = append(mounts, corev1.VolumeMount{Name: "shm", MountPath: "/dev/shm"})
	network := "none"
	if c.Network != container.NoNetwork {
		network = "requested"
	}
	no := false
	grace := int64((c.KillGraceOrDefault() + endMargin + time.Second - 1) / time.Second)
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: podName(c), Namespace: r.Namespace,
			Labels: map[string]string{appLabel: appName, networkLabel: network},
			// Autoscalers do not remove a node below it (cluster-autoscaler's FAQ: "What types of pods can prevent CA from
			// removing a node?"; Karpenter: "Pod-Level Controls").
			Annotations: map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			NodeSelector:                  r.NodeSelector,
			Tolerations:                   r.tolerations(),
			ImagePullSecrets:              r.PullSecrets,
			PriorityClassName:             r.PriorityClass,
			SecurityContext:               r.podSecurity(),
			Containers: []corev1.Container{{
				Name: containerName, Image: c.PinnedReference, Command: enter.FileArgs(), WorkingDir: "/",
				Resources: r.resources(c.MemoryBytes), SecurityContext: containerSecurity(), VolumeMounts: mounts,
				TerminationMessagePath: enter.MessagePath, // else a file in /dev
			}},
			Volumes: volumes,
		},
	}
	if r.Owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*r.Owner}
	}
	return pod, nil
}

// tolerations returns the caller's, and with GPUs that of the taint on their nodes.
func (r Runtime) tolerations() []corev1.Toleration {
	if r.GPUs == 0 {
		return r.Tolerations
	}
	return append(slices.Clone(r.Tolerations), corev1.Toleration{Key: r.GPUResource, Operator: corev1.TolerationOpExists})
}

// podSecurity makes the command the calling user: root is root in the image, as in Docker, and another user owns its
// files on the volume all the same.
func (r Runtime) podSecurity() *corev1.PodSecurityContext {
	s := &corev1.PodSecurityContext{}
	if r.Groups != nil {
		*s = *r.Groups
	}
	uid, gid := int64(os.Getuid()), int64(os.Getgid())
	s.RunAsUser, s.RunAsGroup = &uid, &gid
	s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	if uid != 0 {
		yes := true
		s.RunAsNonRoot = &yes
	}
	return s
}

// containerSecurity is within the Pod Security Standard "baseline" for root, and within "restricted" for others.
func containerSecurity() *corev1.SecurityContext {
	no := false
	s := &corev1.SecurityContext{Privileged: &no, AllowPrivilegeEscalation: &no}
	if os.Getuid() != 0 {
		s.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}
	return s
}

// mounts returns the volumes of binds, and their mounts.
func (r Runtime) mounts(binds []container.Bind) (volumes []corev1.Volume, mounts []corev1.VolumeMount, err error) {
	names := map[string]string{} // by the path of the caller's mount
	for _, b := range binds {
		if strings.Contains(b.Target, ":") {
			return nil, nil, container.RequestErrorf("Kubernetes mounts nothing at a path with a colon, and %q has one", b.Target)
		}
		source, err := filepath.EvalSymlinks(b.Source)
		if err != nil {
			return nil, nil, err
		}
		m, sub, err := r.locate(source)
		if err != nil {
			return nil, nil, &container.HostError{Err: err}
		}
		if names[m.Path] == "" {
			names[m.Path] = "v" + strconv.Itoa(len(volumes))
			volumes = append(volumes, corev1.Volume{Name: names[m.Path], VolumeSource: m.Volume})
		}
		mounts = append(mounts, corev1.VolumeMount{Name: names[m.Path], MountPath: b.Target, SubPath: sub, ReadOnly: b.ReadOnly || m.ReadOnly})
	}
	return volumes, mounts, nil
}
