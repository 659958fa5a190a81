package kubernetes

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cl-slurm/cl-slurm/pilot"
)

// pilotOf returns the pilot of a pod. A pod that is being deleted has ended: it takes no more runs. With a finalizer, or on a
// node that is gone, it may stay in that state for long. A pod on a node that does not answer is lost, until the node
// comes back or the cluster deletes the pod, after its toleration of five minutes.
func pilotOf(pod *corev1.Pod) pilot.Pilot {
	p := pilot.Pilot{Name: pod.Name, Phase: pilot.Pending, State: string(pod.Status.Phase), Node: pod.Spec.NodeName, Since: pod.CreationTimestamp.Time}
	status := workerStatus(pod)
	switch {
	case finished(pod):
		p.Phase, p.State, p.Reason = pilot.Ended, endState(pod, status), endReason(pod, status)
		p.Cancelled = cancelled(pod)
	case pod.DeletionTimestamp != nil:
		p.Phase, p.State, p.Reason = pilot.Ended, "Terminating", disruption(pod)
		p.Cancelled = cancelled(pod)
	case nodeLost(pod, status):
		p.Phase, p.State, p.Reason = pilot.Lost, "Unknown", lostReason(pod)
	case pod.Status.Phase == corev1.PodRunning:
		p.Phase = pilot.Active
	default:
		p.State, p.Reason = string(cmp.Or(pod.Status.Phase, corev1.PodPending)), waiting(status)
	}
	p.Leaving = p.Phase == pilot.Ended && !finished(pod)
	if status.State.Running != nil {
		p.Since = status.State.Running.StartedAt.Time
	}
	return p
}

// finished reports whether the containers of a pod have ended, or will never start.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || workerStatus(pod).State.Terminated != nil
}

// endState returns the phase of a pod whose container has ended. The kubelet reports it a moment later.
func endState(pod *corev1.Pod, status corev1.ContainerStatus) string {
	phase := pod.Status.Phase
	if t := status.State.Terminated; t != nil && phase != corev1.PodSucceeded && phase != corev1.PodFailed {
		phase = corev1.PodFailed
		if t.ExitCode == 0 {
			phase = corev1.PodSucceeded
		}
	}
	return string(phase)
}

// cancelled reports whether a person has deleted the pod, and not the cluster, which then gives a reason.
func cancelled(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil && disruption(pod) == "" }

// workerStatus returns the status of the worker's container; the zero value before there is one.
func workerStatus(pod *corev1.Pod) corev1.ContainerStatus {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

func condition(pod *corev1.Pod, of corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == of {
			return c
		}
	}
	return corev1.PodCondition{}
}

// nodeLost reports whether the cluster has lost the node of a pod. The node controller marks the pod as not ready then
// and changes nothing else (pkg/controller/util/node: MarkPodsNotReady); a kubelet gives a reason for the mark.
func nodeLost(pod *corev1.Pod, status corev1.ContainerStatus) bool {
	ready := condition(pod, corev1.PodReady)
	return pod.Status.Phase == corev1.PodRunning && status.State.Running != nil && ready.Status == corev1.ConditionFalse && ready.Reason == ""
}

// lostReason names the lost node of a pod, with the time at which the cluster noticed.
func lostReason(pod *corev1.Pod) string {
	text := "node " + pod.Spec.NodeName + " is not ready"
	if at := condition(pod, corev1.PodReady).LastTransitionTime; !at.IsZero() {
		text += " since " + at.UTC().Format("15:04:05 UTC")
	}
	return text
}

// disruption returns the cluster's reason for the end of a pod: preemption, eviction, the loss of its node.
func disruption(pod *corev1.Pod) string {
	c := condition(pod, corev1.DisruptionTarget)
	if c.Status != corev1.ConditionTrue {
		return ""
	}
	return words(c.Reason, c.Message)
}

// endReason returns the reason of an end: the pod's, such as Evicted, or else the container's, such as OOMKilled.
func endReason(pod *corev1.Pod, status corev1.ContainerStatus) string {
	if pod.Status.Reason != "" {
		return words(pod.Status.Reason, pod.Status.Message)
	}
	if text := disruption(pod); text != "" {
		return text
	}
	t := status.State.Terminated
	switch {
	case t == nil:
		return strings.TrimSpace(pod.Status.Message)
	case t.Reason == "Completed", t.Reason == "Error", t.Reason == "":
		return words(fmt.Sprintf("exit code %d", t.ExitCode), t.Message)
	}
	return words(fmt.Sprintf("%s, exit code %d", t.Reason, t.ExitCode), t.Message)
}

// endedAt returns the time of a pod's end; that of its creation if none is known.
func endedAt(pod *corev1.Pod) time.Time {
	if t := workerStatus(pod).State.Terminated; t != nil && !t.FinishedAt.IsZero() {
		return t.FinishedAt.Time
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady || c.Type == corev1.DisruptionTarget {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// waiting returns the reason for which a container has not started.
func waiting(status corev1.ContainerStatus) string {
	if w := status.State.Waiting; w != nil {
		return w.Reason
	}
	return ""
}

// words joins a reason and its message.
func words(reason, message string) string {
	reason, message = strings.TrimSpace(reason), strings.Join(strings.Fields(message), " ")
	switch {
	case message == "":
		return reason
	case reason == "":
		return message
	}
	return reason + ": " + message
}
