package pods

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// podWith returns a pod on a node with a container in this state.
func podWith(state corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Image: "lab/x:1"}}},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: state}}},
	}
}

func waiting(reason, message string) *corev1.Pod {
	return podWith(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

// The messages are those of containerd 1.6 and 2.1 by kubelet 1.36, and of CRI-O.
func TestOnlyImagesThatARegistryDoesNotGiveFailAtOnce(t *testing.T) {
	t.Parallel()
	for message, image := range map[string]bool{
		`failed to pull and unpack image "docker.io/lab/x:1": failed to resolve reference "docker.io/lab/x:1": docker.io/lab/x:1: not found`:                                                    true,
		`failed to resolve reference "docker.io/lab/x:1": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed`: true,
		`rpc error: code = Unknown desc = reading manifest 1 in docker.io/lab/x: manifest unknown`:                                                                                              true,
		`failed to pull and unpack image "x": no match for platform in manifest: not found`:                                                                                                     true,
		`failed to resolve reference "r:5000/x:1": failed to do request: Head "https://r:5000/v2/x/manifests/1": dial tcp: lookup r: no such host`:                                              false,
		`failed to resolve reference "r/x:1": failed to do request: Head "https://r/v2/x/manifests/1": dial tcp 10.0.0.1:443: connect: connection refused`:                                      false,
		`failed to resolve reference "r/x:1": unexpected status from HEAD request to https://r/v2/x/manifests/1: 503 Service Unavailable`:                                                       false,
		`toomanyrequests: You have reached your pull rate limit`:                                                                                                                                false,
		`failed to do request: Head "https://r/v2/x/manifests/1": tls: failed to verify certificate: x509: certificate signed by unknown authority`:                                             false,
	} {
		for _, reason := range []string{"ErrImagePull", "ImagePullBackOff"} {
			o := obstacleOf(waiting(reason, message), time.Hour)
			_, refused := o.never.(*container.RequestError) //nolint:errorlint // it is that error itself
			if refused != image || !image && (!strings.Contains(o.text, message) || !strings.HasPrefix(o.text, "node n1 cannot pull the image: ") || o.within != time.Hour) {
				t.Errorf("%s, %s: %+v", reason, message, o)
			}
		}
	}
}

func TestReasonsOfThePodsStartAreTold(t *testing.T) {
	t.Parallel()
	unschedulable := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/2 nodes are available: 2 Insufficient cpu."},
	}}}
	if o := obstacleOf(unschedulable, time.Minute); o.text != "Kubernetes has no node for the pod: 0/2 nodes are available: 2 Insufficient cpu." || o.within != time.Minute || o.never != nil {
		t.Errorf("%+v", o)
	}
	if o := obstacleOf(waiting("CreateContainerError", "context deadline exceeded"), time.Hour); o.text != "node n1 cannot start the container: context deadline exceeded (CreateContainerError)" || o.within != startWithin {
		t.Errorf("%+v", o)
	}
	for _, pod := range []*corev1.Pod{{}, waiting("ContainerCreating", ""), podWith(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})} {
		if o := obstacleOf(pod, time.Hour); o != (obstacle{}) {
			t.Errorf("%+v: %+v", pod.Status, o)
		}
	}
}

func TestEndsByOthersAreToldInKubernetesWords(t *testing.T) {
	t.Parallel()
	evicted := podWith(corev1.ContainerState{})
	evicted.Status.Phase, evicted.Status.Reason, evicted.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory. "
	preempted := podWith(corev1.ContainerState{})
	preempted.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler", Message: "default-scheduler: preempting to accommodate a higher priority pod"}}
	deleted := podWith(corev1.ContainerState{})
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	unknown := podWith(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated"}})
	for want, pod := range map[string]*corev1.Pod{
		"Kubernetes ended the pod on node n1: The node was low on resource: memory. (Evicted)":                                            evicted,
		"Kubernetes ended the pod on node n1: default-scheduler: preempting to accommodate a higher priority pod (PreemptionByScheduler)": preempted,
		"somebody deleted the pod p on node n1": deleted,
		"the pod's end on node n1 is unknown: The container could not be located when the pod was terminated": unknown,
	} {
		if err := fault(pod, false); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := fault(deleted, true); err != nil {
		t.Errorf("its own deletion: %v", err)
	}
	if err := fault(podWith(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}), false); err != nil {
		t.Errorf("a usual end: %v", err)
	}
}

func TestLastFailureOfTheKubeletCounts(t *testing.T) {
	t.Parallel()
	at := func(second int64, reason, message string) corev1.Event {
		return corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.Time{Time: time.Unix(second, 0)}}
	}
	mount := at(3, "FailedMount", "MountVolume.SetUp failed: mount.nfs: Connection refused")
	if text := mountFailure([]corev1.Event{mount, at(1, "Scheduled", "")}); text != "MountVolume.SetUp failed: mount.nfs: Connection refused (FailedMount)" {
		t.Errorf("%q", text)
	}
	if text := mountFailure([]corev1.Event{mount, at(4, "Pulling", "")}); text != "" {
		t.Errorf("%q", text)
	}
}
