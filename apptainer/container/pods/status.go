package pods

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// obstacle is the reason why a pod's container does not start yet.
type obstacle struct {
	// text is a phrase in the words of the scheduler or of the kubelet; empty if nothing is known.
	text string
	// never is the error if it can never start.
	never error
	// within is the time after which the host counts as at fault.
	within time.Duration
}

// startWithin bounds the time for a container that a kubelet fails to create or to start.
const startWithin = 2 * time.Minute

// obstacleOf reads a pod's status. patience is the time for a place on a node, and for an image.
func obstacleOf(pod *corev1.Pod, patience time.Duration) obstacle {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return obstacle{text: "Kubernetes has no node for the pod: " + cmp.Or(c.Message, c.Reason), within: patience}
		}
	}
	status := statusOf(pod)
	if status == nil || status.State.Waiting == nil {
		return obstacle{}
	}
	waiting := status.State.Waiting
	said := cmp.Or(strings.TrimSpace(waiting.Message), waiting.Reason)
	switch waiting.Reason { // pkg/kubelet/images/types.go, pkg/kubelet/container/sync_result.go
	case "InvalidImageName", "ErrImageNeverPull":
		return obstacle{never: container.RequestErrorf("Kubernetes cannot use the image %s: %s (%s)", imageOf(pod), said, waiting.Reason)}
	case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
		if isImagesFault(said) {
			return obstacle{never: container.RequestErrorf("Kubernetes cannot pull the image %s: %s (%s)", imageOf(pod), said, waiting.Reason)}
		}
		return obstacle{text: fmt.Sprintf("node %s cannot pull the image: %s (%s)", pod.Spec.NodeName, said, waiting.Reason), within: patience}
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CreatePodSandboxError":
		return obstacle{text: fmt.Sprintf("node %s cannot start the container: %s (%s)", pod.Spec.NodeName, said, waiting.Reason), within: startWithin}
	}
	return obstacle{}
}

// isImagesFault reports whether a registry has answered that it does not give the image: words of containerd
// (core/remotes/docker/resolver.go, errors.go), of CRI-O, and of registries (OCI distribution-spec: Error Codes).
func isImagesFault(said string) bool {
	said = strings.ToLower(said)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(said, w) })
	}
	if has("dial tcp", "timeout", "connection re", "no such host", "tls:", "x509:", "too many requests", "toomanyrequests", ": eof", "deadline exceeded", "status: 5", "status code: 5") {
		return false
	}
	return has("not found", "denied", "unauthorized", "forbidden", "authorization failed", "manifest unknown", "name unknown", "no match for platform", "does not exist", "unsupported")
}

func imageOf(pod *corev1.Pod) string { return pod.Spec.Containers[0].Image }

// statusOf returns the status of a pod's container, or nil before there is one.
func statusOf(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		return &pod.Status.ContainerStatuses[i]
	}
	return nil
}

// hasEnded reports whether no process of a pod runs any more.
func hasEnded(pod *corev1.Pod) bool {
	status := statusOf(pod)
	return status != nil && status.State.Terminated != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// fault returns the reason for which Kubernetes or a person has ended a pod, or nil. A pod that its caller has deleted is
// no such one.
func fault(pod *corev1.Pod, own bool) error {
	where := ""
	if pod.Spec.NodeName != "" {
		where = " on node " + pod.Spec.NodeName
	}
	for _, c := range pod.Status.Conditions { // pkg/apis/core/types.go: DisruptionTarget
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return fmt.Errorf("Kubernetes ended the pod%s: %s (%s)", where, strings.TrimSpace(c.Message), c.Reason) //nolint:staticcheck // a name
		}
	}
	switch status := statusOf(pod); {
	case pod.Status.Reason != "": // Evicted, NodeLost, Terminated at a node's shutdown (pkg/kubelet/eviction, nodeshutdown)
		return fmt.Errorf("Kubernetes ended the pod%s: %s (%s)", where, strings.TrimSpace(pod.Status.Message), pod.Status.Reason) //nolint:staticcheck // a name
	case status != nil && status.State.Terminated != nil && status.State.Terminated.Reason == "ContainerStatusUnknown":
		return fmt.Errorf("the pod's end%s is unknown: %s", where, strings.TrimSpace(status.State.Terminated.Message))
	case pod.DeletionTimestamp != nil && !own:
		return fmt.Errorf("somebody deleted the pod %s%s", pod.Name, where)
	}
	return nil
}

// isOOM reports whether the kernel killed a pod's first process for memory.
func isOOM(pod *corev1.Pod) bool {
	status := statusOf(pod)
	return status != nil && status.State.Terminated != nil && status.State.Terminated.Reason == "OOMKilled"
}

// mountFailure returns the kubelet's last word about a failure to set a pod up, which is in no status.
func mountFailure(events []corev1.Event) (text string) {
	slices.SortFunc(events, func(a, b corev1.Event) int { return lastTime(a).Compare(lastTime(b)) })
	for _, e := range events {
		switch e.Reason { // pkg/kubelet/events/event.go
		case "FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox":
			text = fmt.Sprintf("%s (%s)", strings.TrimSpace(e.Message), e.Reason)
		case "Scheduled", "SuccessfulAttachVolume", "Pulling", "Pulled", "Created", "Started":
			text = ""
		}
	}
	return text
}

// lastTime returns the last time of an event (k8s.io/kubectl: pkg/describe: translateTimestampSince).
func lastTime(e corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}
