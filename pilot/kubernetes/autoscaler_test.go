package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// record writes an event about a pod as the recorder of a program does (client-go: tools/record/event.go: makeEvent). An
// event of the same text is counted in the first one (tools/record/events_cache.go: eventObserve).
func (s *site) record(component string, pod *corev1.Pod, kind, reason, message string) {
	s.t.Helper()
	now := metav1.Now()
	e := corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", pod.Name, now.UnixNano()), Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		},
		Type: kind, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: component}, ReportingController: component,
	}
	var all corev1.EventList
	testenv.Must(s.t, json.Unmarshal(s.api(http.MethodGet, s.path("events"), nil), &all))
	for _, before := range all.Items {
		if before.Source == e.Source && before.Reason == reason && before.Message == message && before.InvolvedObject.UID == pod.UID {
			s.patch("events/"+before.Name, fmt.Sprintf(`{"count":%d,"lastTimestamp":%q}`, before.Count+1, now.UTC().Format(time.RFC3339)))
			return
		}
	}
	s.api(http.MethodPost, s.path("events"), e)
}

// The words are those of cluster-autoscaler (eventing_scale_up_processor.go: Process) and Karpenter (scheduling/events.go).
func TestAutoscalersWordIsToldAndMakesTheManagerPatient(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	b.Settings.GPUs = 16
	p := await(t, b, start(t, b), "has no node", func(p pilot.Pilot) bool { return strings.Contains(p.Trouble, "Insufficient nvidia.com/gpu") })
	alone := p.Patience
	pod := s.pods().Items[0]
	const autoscaler, karpenter = "cluster-autoscaler", "karpenter"
	for _, step := range []struct {
		by, kind, reason, message string
		scales                    bool
	}{
		{autoscaler, corev1.EventTypeNormal, "TriggeredScaleUp", "pod triggered scale-up: [{gpu-pool 1->2 (max: 3)}]", true},
		{autoscaler, corev1.EventTypeNormal, "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached", false},
		{autoscaler, corev1.EventTypeNormal, "TriggeredScaleUp", "pod triggered scale-up: [{gpu-pool 1->2 (max: 3)}]", true}, // its second time
		{karpenter, corev1.EventTypeWarning, "FailedScheduling", `Failed to schedule pod, incompatible with nodepool "gpu", no instance type satisfied resources`, false},
		{karpenter, corev1.EventTypeNormal, "Nominated", "Pod should schedule on: nodeclaim/gpu-x7k2q", true},
	} {
		s.record(step.by, &pod, step.kind, step.reason, step.message)
		p = await(t, b, pod.Name, "tells "+step.reason, func(p pilot.Pilot) bool {
			b.Now = later(b.Now) // so that the backend asks for events
			return strings.HasSuffix(p.Trouble, "; "+step.reason+": "+step.message)
		})
		if !strings.Contains(p.Trouble, "Insufficient nvidia.com/gpu") || p.Patience > alone != step.scales {
			t.Errorf("%s: patience %s, alone %s; %q", step.reason, p.Patience, alone, p.Trouble)
		}
	}
	if alone >= 20*time.Minute {
		t.Errorf("the patience without an autoscaler is %s", alone)
	}
	testenv.Must(t, b.Stop(t.Context(), p))
}
