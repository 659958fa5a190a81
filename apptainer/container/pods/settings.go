package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
)

// Settings describe the pods of one caller. A caller saves them in a file for the processes that run containers.
type Settings struct {
	Access    kubeclient.Access `json:"access"`
	Namespace string            `json:"namespace"`
	// Mounts are the volumes that caller and pods share.
	Mounts []Mount `json:"mounts"`
	// Owner is the caller's own pod, with which its pods are removed; nil if it runs in none.
	Owner *metav1.OwnerReference `json:"owner,omitempty"`
	// GPUResource is the name of GPUs in requests.
	GPUResource string `json:"gpu_resource"`
	// The rest is that of the caller's own pod, or empty.
	NodeSelector  map[string]string             `json:"node_selector,omitempty"`
	Tolerations   []corev1.Toleration           `json:"tolerations,omitempty"`
	PullSecrets   []corev1.LocalObjectReference `json:"pull_secrets,omitempty"`
	PriorityClass string                        `json:"priority_class,omitempty"`
	Groups        *corev1.PodSecurityContext    `json:"groups,omitempty"` // its supplemental groups and SELinux labels alone
}

// Mount is a directory of the caller in which a volume is mounted.
type Mount struct {
	// Path is the directory, SubPath the part of the volume that is mounted there; empty means all of it.
	Path     string              `json:"path"`
	SubPath  string              `json:"sub_path,omitempty"`
	ReadOnly bool                `json:"read_only,omitempty"`
	Volume   corev1.VolumeSource `json:"volume"`
}

// DefaultGPUResource is the name of NVIDIA's GPUs in requests, and the key of the taint that clouds give to nodes with
// GPUs.
const DefaultGPUResource = "nvidia.com/gpu"

// Save writes the settings to a file of this user alone.
func (s Settings) Save(file string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("save the settings of pods: %w", err)
	}
	if err := atomicfile.Write(file, text, 0o600); err != nil {
		return fmt.Errorf("save the settings of pods: %w", err)
	}
	return nil
}

// Load reads saved settings.
func Load(file string) (s Settings, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read the settings of pods: %w", err)
	}
	return s, nil
}

// HostDirectory returns the mount of a directory of the hosts, which has the same path on all nodes.
func HostDirectory(dir string) Mount {
	kind := corev1.HostPathDirectory
	return Mount{Path: dir, Volume: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: &kind}}}
}

// Find returns the settings of a caller. own is the name of its own pod, or empty if it runs in none; its directory
// work then is one of the hosts, as for CodaLab's own worker (codalab/worker/runtime/kubernetes_runtime.py:
// start_bundle_container).
func Find(ctx context.Context, access kubeclient.Access, own, work string) (Settings, error) {
	s := Settings{Access: access, GPUResource: DefaultGPUResource}
	c, err := connect(access)
	if err != nil {
		return s, err
	}
	s.Namespace = c.namespace
	work, err = filepath.EvalSymlinks(work)
	if err != nil {
		return s, fmt.Errorf("find the work directory: %w", err)
	}
	if own == "" {
		s.Mounts = []Mount{HostDirectory(work)}
		return s, nil
	}
	pod, err := c.get(ctx, own)
	if err != nil {
		return s, fmt.Errorf("read this worker's own pod %s in the namespace %s, which POD_NAME and POD_NAMESPACE name: %w", own, c.namespace, err)
	}
	s.inherit(pod)
	for i := range pod.Spec.Containers { // a cluster may add other containers to each pod
		s.Mounts = mountsOf(pod, i)
		if _, _, err = s.locate(work); err == nil {
			return s, nil
		}
	}
	return s, err
}

// inherit takes the caller's own pod for a model.
func (s *Settings) inherit(own *corev1.Pod) {
	s.Owner = &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: own.Name, UID: own.UID}
	s.NodeSelector, s.PullSecrets, s.PriorityClass = own.Spec.NodeSelector, own.Spec.ImagePullSecrets, own.Spec.PriorityClassName
	for _, t := range own.Spec.Tolerations {
		if !strings.HasPrefix(t.Key, "node.kubernetes.io/") { // the API server adds these to each pod
			s.Tolerations = append(s.Tolerations, t)
		}
	}
	if sc := own.Spec.SecurityContext; sc != nil {
		s.Groups = &corev1.PodSecurityContext{SupplementalGroups: slices.Clone(sc.SupplementalGroups), SELinuxOptions: sc.SELinuxOptions}
		if sc.FSGroup != nil { // as such, it would make each pod's start wait until all files of the volume have this group
			s.Groups.SupplementalGroups = append(s.Groups.SupplementalGroups, *sc.FSGroup)
		}
	}
}

// mountsOf returns the mounts of a container of a pod.
func mountsOf(pod *corev1.Pod, container int) (mounts []Mount) {
	volumes := map[string]corev1.VolumeSource{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = v.VolumeSource
	}
	for _, m := range pod.Spec.Containers[container].VolumeMounts {
		if m.SubPathExpr == "" {
			mounts = append(mounts, Mount{Path: filepath.Clean(m.MountPath), SubPath: m.SubPath, ReadOnly: m.ReadOnly, Volume: volumes[m.Name]})
		}
	}
	return mounts
}

// isShared reports whether another pod can mount the same volume.
func isShared(v corev1.VolumeSource) bool {
	return v.PersistentVolumeClaim != nil || v.HostPath != nil || v.NFS != nil || v.CephFS != nil || v.AzureFile != nil || v.Glusterfs != nil
}

// locate returns the mount that has a file of the caller, and its path in the volume.
func (s Settings) locate(file string) (Mount, string, error) {
	var found Mount
	for _, m := range s.Mounts {
		if within(file, m.Path) && len(m.Path) > len(found.Path) {
			found = m
		}
	}
	switch {
	case found.Path == "":
		paths := make([]string, 0, len(s.Mounts))
		for _, m := range s.Mounts {
			if isShared(m.Volume) {
				paths = append(paths, m.Path)
			}
		}
		slices.Sort(paths)
		if len(paths) == 0 {
			return found, "", fmt.Errorf("%s is on no volume that other pods can mount: this worker's pod has none", file)
		}
		return found, "", fmt.Errorf("%s is on no volume that other pods can mount: this worker has such volumes at %s", file, strings.Join(paths, ", "))
	case !isShared(found.Volume):
		return found, "", fmt.Errorf("%s is on a volume of this worker's pod alone (%s), which other pods cannot mount: the worker's pod needs a PersistentVolumeClaim there", file, kindOf(found.Volume))
	}
	rel, err := filepath.Rel(found.Path, file)
	if err != nil {
		return found, "", fmt.Errorf("find %s in its volume: %w", file, err)
	}
	if sub := filepath.Join(found.SubPath, rel); sub != "." {
		return found, sub, nil
	}
	return found, "", nil
}

func within(file, dir string) bool {
	return dir == "/" || file == dir || strings.HasPrefix(file, dir+"/")
}

// kindOf returns the kind of a volume, as its field in a pod is called.
func kindOf(v corev1.VolumeSource) string {
	text, err := json.Marshal(v)
	var fields map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	for name := range fields {
		if err == nil {
			return name
		}
	}
	return "of an unknown kind"
}
