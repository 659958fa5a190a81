package pods

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func claim(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

// ownPod is a worker's pod with a claim, a part of another one, and volumes of its own.
func ownPod(work string) *corev1.Pod {
	seconds, group := int64(300), int64(1000)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "cl-worker-1", UID: "u"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"pool": "lab"}, PriorityClassName: "low",
			SecurityContext:  &corev1.PodSecurityContext{FSGroup: &group, SupplementalGroups: []int64{7}},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "login"}},
			Tolerations:      []corev1.Toleration{{Key: "lab"}, {Key: "node.kubernetes.io/not-ready", TolerationSeconds: &seconds}},
			Volumes: []corev1.Volume{
				{Name: "work", VolumeSource: claim("lab-claim")},
				{Name: "data", VolumeSource: claim("data")},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
			Containers: []corev1.Container{{VolumeMounts: []corev1.VolumeMount{
				{Name: "work", MountPath: work}, {Name: "data", MountPath: work + "/data", SubPath: "of/lab", ReadOnly: true}, {Name: "tmp", MountPath: work + "/own"},
			}}},
		},
	}
}

func TestBindsBecomePartsOfTheWorkersOwnVolumes(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	testenv.Must(t, err)
	for _, name := range []string{"run", "data/set", "own", "link"} {
		testenv.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		if name == "link" {
			testenv.Must(t, os.Symlink("run", filepath.Join(dir, name)))
			continue
		}
		testenv.Must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	own := ownPod(dir)
	var r Runtime
	r.inherit(own)
	r.Mounts, r.GPUResource = mountsOf(own, 0), DefaultGPUResource
	volumes, mounts, err := r.mounts([]container.Bind{
		{Source: filepath.Join(dir, "run"), Target: "/0x1"},
		{Source: filepath.Join(dir, "data/set"), Target: "/in"},
		{Source: filepath.Join(dir, "link"), Target: "/linked", ReadOnly: true},
		{Source: dir, Target: "/all"},
	})
	testenv.Must(t, err)
	want := []corev1.VolumeMount{
		{Name: "v0", MountPath: "/0x1", SubPath: "run"},
		{Name: "v1", MountPath: "/in", SubPath: "of/lab/set", ReadOnly: true},
		{Name: "v0", MountPath: "/linked", SubPath: "run", ReadOnly: true},
		{Name: "v0", MountPath: "/all"},
	}
	for i := range want {
		if mounts[i] != want[i] {
			t.Errorf("%+v, want %+v", mounts[i], want[i])
		}
	}
	if len(volumes) != 2 || volumes[1].PersistentVolumeClaim.ClaimName != "data" {
		t.Errorf("volumes %+v", volumes)
	}
	for source, want := range map[string]string{
		filepath.Join(dir, "own"): "is on a volume of this worker's pod alone (emptyDir)",
		"/etc":                    "/etc is on no volume that other pods can mount: this worker has such volumes at " + dir + ", " + dir + "/data",
	} {
		var host *container.HostError
		if _, _, err := r.mounts([]container.Bind{{Source: source, Target: "/x"}}); !errors.As(err, &host) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", source, err)
		}
	}
	var request *container.RequestError
	if _, _, err := r.mounts([]container.Bind{{Source: dir, Target: "/a:b"}}); !errors.As(err, &request) {
		t.Errorf("a colon: %v", err)
	}
}

func TestPodIsLikeTheWorkersAndHasNoPrivilege(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	testenv.Must(t, err)
	own := ownPod(dir)
	r := Runtime{CPUs: 1, GPUs: 2}
	r.inherit(own)
	r.Mounts, r.GPUResource, r.Namespace = mountsOf(own, 0), "amd.com/gpu", "lab"
	pod, err := r.pod(container.Container{PinnedReference: "lab/x:1", Dir: "/0xabc", ShellCommand: "echo secret", Env: []string{"A=secret"}, MemoryBytes: 1 << 30, ShmBytes: 1 << 20}, []container.Bind{{Source: dir, Target: "/0xabc"}})
	testenv.Must(t, err)
	text, err := pod.Marshal()
	testenv.Must(t, err)
	c := pod.Spec.Containers[0]
	gpus, half := c.Resources.Limits["amd.com/gpu"], c.Resources.Requests[corev1.ResourceCPU]
	switch {
	case strings.Contains(string(text), "secret"):
		t.Error("the pod shows the command or its environment")
	case !strings.HasPrefix(pod.Name, "cl-run-0xabc-") || pod.Labels[networkLabel] != "none":
		t.Errorf("%s, %v", pod.Name, pod.Labels)
	case pod.Spec.NodeSelector["pool"] != "lab" || pod.Spec.PriorityClassName != "low" || pod.Spec.ImagePullSecrets[0].Name != "login":
		t.Errorf("%+v", pod.Spec)
	case len(pod.Spec.Tolerations) != 2 || pod.Spec.Tolerations[0].Key != "lab" || pod.Spec.Tolerations[1].Key != "amd.com/gpu":
		t.Errorf("tolerations %+v", pod.Spec.Tolerations)
	case pod.OwnerReferences[0].Name != "cl-worker-1" || pod.OwnerReferences[0].UID != "u":
		t.Errorf("%+v", pod.OwnerReferences)
	case !slices.Equal(pod.Spec.SecurityContext.SupplementalGroups, []int64{7, 1000}) || pod.Spec.SecurityContext.FSGroup != nil:
		t.Errorf("%+v", pod.Spec.SecurityContext)
	case gpus.Value() != 2 || half.MilliValue() != 500 || c.Resources.Limits.Cpu().Value() != 1 || c.Resources.Limits.Memory().Value() != 1<<30+ownMemory:
		t.Errorf("%+v", c.Resources)
	case *pod.Spec.AutomountServiceAccountToken || pod.Spec.HostNetwork || pod.Spec.HostPID || pod.Spec.HostIPC || *c.SecurityContext.Privileged || *c.SecurityContext.AllowPrivilegeEscalation:
		t.Errorf("%+v", pod.Spec)
	case pod.Spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *pod.Spec.SecurityContext.RunAsUser != int64(os.Getuid()):
		t.Errorf("%+v", pod.Spec.SecurityContext)
	}
}
