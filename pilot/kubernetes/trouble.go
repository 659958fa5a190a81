package kubernetes

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"

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
	// autoscaler has an autoscaler's last word about the pod; scaling is set if it adds a node for it.
	autoscaler string
	scaling    bool
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
		return words(scheduled.Reason, joined(scheduled.Message, found.autoscaler)), patience
	case found.failure != "":
		return found.failure, repairPatience
	}
	return "", 0
}

// joined joins the scheduler's message and an autoscaler's word, which may be empty.
func joined(message, autoscaler string) string {
	if autoscaler == "" {
		return message
	}
	return strings.TrimRight(message, ". ") + "; " + autoscaler
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

// autoscalerWorks reports whether an autoscaler adds a node for a pod. All pods are alike, so that those whose events the
// backend has not read yet may hope for one, too.
func (b *Backend) autoscalerWorks() bool {
	for _, found := range b.events {
		if found.scaling {
			return true
		}
	}
	return false
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
	slices.SortFunc(events, older)
	for _, e := range events {
		if scaling, spoken := autoscalerSays(e); spoken {
			found.autoscaler, found.scaling = words(e.Reason, e.Message), scaling
			continue
		}
		switch e.Reason {
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

// autoscalerSays reports whether an event is an autoscaler's word, and whether it adds a node for the pod.
func autoscalerSays(e corev1.Event) (scaling, spoken bool) {
	switch e.Reason {
	case "TriggeredScaleUp", // cluster-autoscaler: processors/status/eventing_scale_up_processor.go: Process
		"Nominated": // Karpenter: pkg/controllers/provisioning/scheduling/events.go: NominatePodEvent
		return true, true
	case "NotTriggerScaleUp": // cluster-autoscaler, the same
		return false, true
	case "FailedScheduling": // also the scheduler's, whose words are in the pod's status. Karpenter: PodFailedToScheduleEvent
		return false, strings.HasPrefix(e.Message, "Failed to schedule pod")
	}
	return false, false
}

// older orders events. Their times have full seconds; the server's versions order those of one second.
func older(a, b corev1.Event) int {
	if order := lastTime(a).Compare(lastTime(b)); order != 0 {
		return order
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil { // of a server whose versions are no numbers
		return 0
	}
	return order
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
