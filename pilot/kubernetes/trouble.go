package kubernetes

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/cl-slurm/cl-slurm/pilot"
)

// The times for which a pilot may stay in trouble.
const (
	// noPatience is for troubles that never pass.
	noPatience = 0
	// repairPatience is for troubles that pass by themselves: a registry that does not answer, a volume that another
	// node still has.
	repairPatience = 5 * time.Minute
	// roomPatience is for pods without a node. Other pods may end and make room.
	roomPatience = 10 * time.Minute
	// scalePatience is for pods for which an autoscaler adds a node, which may need a driver for its GPUs.
	scalePatience = 30 * time.Minute
)

// waitTroubles are reasons for which a container waits in trouble (pkg/kubelet/images/types.go,
// pkg/kubelet/kuberuntime/kuberuntime_container.go).
func waitTroubles() map[string]time.Duration {
	return map[string]time.Duration{
		"InvalidImageName": noPatience, "ErrImageNeverPull": noPatience,
		"ErrImagePull": repairPatience, "ImagePullBackOff": repairPatience, "ImageInspectError": repairPatience,
		"RegistryUnavailable": repairPatience, "SignatureValidationFailed": repairPatience,
		"CreateContainerConfigError": repairPatience, "CreateContainerError": repairPatience, "RunContainerError": repairPatience,
		"PreCreateHookError": repairPatience, "PreStartHookError": repairPatience, "PostStartHookError": repairPatience,
	}
}

// findings are read from the events of a pod.
type findings struct {
	asked time.Time
	// scaling is set if an autoscaler adds a node for the pod.
	scaling bool
	// failure is a failure of the kubelet that the pod's status does not show.
	failure string
	// eviction is the reason for which the cluster ended the pod. The status of an evicted pod does not show it if its
	// container ends with TERM and exit code 0.
	eviction string
}

// trouble returns the reason for which a pending pod does not start, in the cluster's words, and the patience with it.
func trouble(pod *corev1.Pod, found findings) (string, time.Duration) {
	if w := workerStatus(pod).State.Waiting; w != nil {
		if patience, ok := waitTroubles()[w.Reason]; ok {
			return words(w.Reason, w.Message), patience
		}
	}
	scheduled := condition(pod, corev1.PodScheduled)
	switch {
	case scheduled.Status == corev1.ConditionFalse && scheduled.Reason != corev1.PodReasonSchedulingGated:
		patience := roomPatience
		if found.scaling {
			patience = scalePatience
		}
		return words(scheduled.Reason, scheduled.Message), patience
	case found.failure != "":
		return found.failure, repairPatience
	}
	return "", 0
}

const (
	// askEventsAfter is the age of a pending pod at which the backend asks for its events, askEventsEvery the interval
	// of the questions, askEventsMost their number in one call of Pilots.
	askEventsAfter = 10 * time.Second
	askEventsEvery = time.Minute
	askEventsMost  = 4
	// endedLately is the age of an end up to which the backend asks for the events of the pod, once.
	endedLately = time.Minute
)

// askEvents asks for the events of pods that are pending for a while or have just ended. Only events tell of volumes that
// cannot be mounted, of autoscalers at work, and of some evictions. A login without the right to see events is no
// error.
func (b *Backend) askEvents(ctx context.Context, pods []corev1.Pod) error {
	if b.events == nil {
		b.events = map[string]findings{}
	}
	shown := map[string]bool{}
	now, asked := b.Now(), 0
	for i := range pods {
		pod := &pods[i]
		shown[pod.Name] = true
		if b.noEvents != nil || asked == askEventsMost || !eventsDue(pod, b.events[pod.Name].asked, now) {
			continue
		}
		asked++
		found, err := b.Cluster.findings(ctx, pod, now)
		switch {
		case apierrors.IsForbidden(err):
			b.noEvents = err
			return nil
		case err != nil:
			return err
		}
		b.events[pod.Name] = found
	}
	maps.DeleteFunc(b.events, func(name string, _ findings) bool { return !shown[name] })
	return nil
}

// eventsDue reports whether to ask for the events of a pod; asked is the time of the last question.
func eventsDue(pod *corev1.Pod, asked, now time.Time) bool {
	switch p := pilotOf(pod); {
	case p.Phase == pilot.Pending:
		return now.Sub(pod.CreationTimestamp.Time) >= askEventsAfter && now.Sub(asked) >= askEventsEvery
	case finished(pod) && pod.Status.Reason == "" && disruption(pod) == "":
		return now.Sub(endedAt(pod)) < endedLately && asked.Before(endedAt(pod))
	}
	return false
}

// findings reads the events of a pod.
func (c *Cluster) findings(ctx context.Context, pod *corev1.Pod, now time.Time) (findings, error) {
	options := metav1.ListOptions{Limit: pageSize, FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)).String()}
	var events corev1.EventList
	if err := do(ctx, c.in(c.reads.Get(), "events").VersionedParams(&options, metav1.ParameterCodec), &events); err != nil {
		return findings{}, c.failed("read the events of worker "+pod.Name, err)
	}
	return readEvents(events.Items, now), nil
}

// readEvents reads events. A failure counts if it is the kubelet's last word.
func readEvents(events []corev1.Event, now time.Time) findings {
	found := findings{asked: now}
	slices.SortFunc(events, func(a, b corev1.Event) int { return lastTime(a).Compare(lastTime(b)) })
	for _, e := range events {
		switch e.Reason {
		case "TriggeredScaleUp", // cluster-autoscaler: processors/status/eventing_scale_up_processor.go
			"Nominated": // Karpenter: pkg/controllers/provisioning/scheduling/events.go
			found.scaling = true
		case "NotTriggerScaleUp":
			found.scaling = false
		case "FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox": // pkg/kubelet/events/event.go
			found.failure = words(e.Reason, e.Message)
		case "Evicted", "Preempting": // pkg/kubelet/eviction, pkg/kubelet/preemption
			found.eviction = words(e.Reason, e.Message)
		case "Scheduled", "SuccessfulAttachVolume", "Pulling", "Pulled", "Created", "Started":
			found.failure = ""
		}
	}
	return found
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
