package kubernetes

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cl-slurm/cl-slurm/pilot"
)

var created = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// onNode returns a pod on node n1 with a phase and a state of its container.
func onNode(phase corev1.PodPhase, state corev1.ContainerState, change func(p *corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.NewTime(created)},
		Spec:       corev1.PodSpec{NodeName: "n1"},
		Status:     corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: container, State: state}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func with(conditions ...corev1.PodCondition) func(p *corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Conditions = conditions }
}

// TestPhaseOfAPod is the table of pods that no test can make on every cluster, such as those of lost nodes.
func TestPhaseOfAPod(t *testing.T) {
	t.Parallel()
	started := created.Add(time.Minute)
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}}
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: metav1.NewTime(started)}}
	}
	deleted := func(conditions ...corev1.PodCondition) func(p *corev1.Pod) {
		return func(p *corev1.Pod) {
			now := metav1.NewTime(started)
			p.DeletionTimestamp, p.Status.Conditions = &now, conditions
		}
	}
	ready := func(status corev1.ConditionStatus, reason string) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.PodReady, Status: status, Reason: reason}
	}
	disrupted := func(reason, message string) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want pilot.Pilot
	}{
		"new":                 {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.NewTime(created)}}, pilot.Pilot{Phase: pilot.Pending, State: "Pending", Since: created}},
		"its image is pulled": {onNode(corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}, nil), pilot.Pilot{Phase: pilot.Pending, State: "Pending", Reason: "ContainerCreating", Node: "n1", Since: created}},
		"it runs":             {onNode(corev1.PodRunning, running, with(ready(corev1.ConditionTrue, ""))), pilot.Pilot{Phase: pilot.Active, State: "Running", Node: "n1", Since: started}},
		"its kubelet has not seen it ready": {
			onNode(corev1.PodRunning, running, with(ready(corev1.ConditionFalse, "ContainersNotReady"))),
			pilot.Pilot{Phase: pilot.Active, State: "Running", Node: "n1", Since: started},
		},
		"its node is lost": {
			onNode(corev1.PodRunning, running, with(corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(started)})),
			pilot.Pilot{Phase: pilot.Lost, State: "Unknown", Reason: "node n1 is not ready since 12:01:00 UTC", Node: "n1", Since: started},
		},
		"the kubelet reports its end first": {onNode(corev1.PodRunning, ended(3, "Error"), nil), pilot.Pilot{Phase: pilot.Ended, State: "Failed", Reason: "exit code 3", Node: "n1", Since: created}},
		"its program is not there":          {onNode(corev1.PodFailed, ended(128, "StartError"), nil), pilot.Pilot{Phase: pilot.Ended, State: "Failed", Reason: "StartError, exit code 128", Node: "n1", Since: created}},
		"a person deletes it":               {onNode(corev1.PodRunning, running, deleted()), pilot.Pilot{Phase: pilot.Ended, State: "Terminating", Leaving: true, Cancelled: true, Node: "n1", Since: started}},
		"the scheduler preempts it": {
			onNode(corev1.PodRunning, running, deleted(disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"))),
			pilot.Pilot{Phase: pilot.Ended, State: "Terminating", Leaving: true, Reason: "PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod", Node: "n1", Since: started},
		},
		"its node is gone": {
			onNode(corev1.PodRunning, running, deleted(disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"))),
			pilot.Pilot{Phase: pilot.Ended, State: "Terminating", Leaving: true, Reason: "DeletionByTaintManager: Taint manager: deleting due to NoExecute taint", Node: "n1", Since: started},
		},
		"the kubelet refuses it": {
			onNode(corev1.PodFailed, corev1.ContainerState{}, func(p *corev1.Pod) {
				p.Status.ContainerStatuses, p.Status.Reason, p.Status.Message = nil, "UnexpectedAdmissionError", "Allocate failed due to\n no healthy devices"
			}),
			pilot.Pilot{Phase: pilot.Ended, State: "Failed", Reason: "UnexpectedAdmissionError: Allocate failed due to no healthy devices", Node: "n1", Since: created},
		},
		"its node shuts down": {
			onNode(corev1.PodFailed, ended(143, "Error"), func(p *corev1.Pod) {
				p.Status.Reason, p.Status.Message = "Terminated", "Pod was terminated in response to imminent node shutdown."
			}),
			pilot.Pilot{Phase: pilot.Ended, State: "Failed", Reason: "Terminated: Pod was terminated in response to imminent node shutdown.", Node: "n1", Since: created},
		},
	} {
		test.want.Name = "p"
		if diff := cmp.Diff(test.want, pilotOf(test.pod)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPatienceIsLongerWhileAnAutoscalerWorks(t *testing.T) {
	t.Parallel()
	event := func(second int, reason, message string) corev1.Event {
		return corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(created.Add(time.Duration(second) * time.Second))}
	}
	series := corev1.Event{Reason: "FailedMount", Message: "no disk", Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(created.Add(time.Hour))}}
	unscheduled := onNode(corev1.PodPending, corev1.ContainerState{}, with(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/2 nodes are available"}))
	gated := onNode(corev1.PodPending, corev1.ContainerState{}, with(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SchedulingGated", Message: "waits for Kueue"}))
	scheduled := onNode(corev1.PodPending, corev1.ContainerState{}, with(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}))
	const words = "Unschedulable: 0/2 nodes are available"
	for name, test := range map[string]struct {
		pod      *corev1.Pod
		events   []corev1.Event
		trouble  string
		patience time.Duration
	}{
		"no room":                    {unscheduled, nil, words, roomPatience},
		"a node is added":            {unscheduled, []corev1.Event{event(1, "TriggeredScaleUp", "pod triggered scale-up")}, words + "; TriggeredScaleUp: pod triggered scale-up", scalePatience},
		"Karpenter adds one":         {unscheduled, []corev1.Event{event(1, "Nominated", "Pod should schedule on: nodeclaim/x")}, words + "; Nominated: Pod should schedule on: nodeclaim/x", scalePatience},
		"the autoscaler can do less": {unscheduled, []corev1.Event{event(2, "NotTriggerScaleUp", "max node group size reached"), event(1, "TriggeredScaleUp", "")}, words + "; NotTriggerScaleUp: max node group size reached", roomPatience},
		"the scheduler's own event":  {unscheduled, []corev1.Event{event(2, "FailedScheduling", "0/2 nodes are available"), event(1, "Nominated", "x")}, words + "; Nominated: x", scalePatience},
		"a queue holds it":           {gated, nil, "", 0},
		"no volume":                  {scheduled, []corev1.Event{series, event(1, "Scheduled", "")}, "FailedMount: no disk", repairPatience},
		"the volume came at last":    {scheduled, []corev1.Event{event(3, "Pulling", ""), event(2, "FailedMount", "no disk")}, "", 0},
	} {
		got, patience := trouble(test.pod, readEvents(test.events, created))
		if got != test.trouble || patience != test.patience {
			t.Errorf("%s: %q for %s, want %q for %s", name, got, patience, test.trouble, test.patience)
		}
	}
}

func TestToleration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]corev1.Toleration{
		"gpu":                 {Key: "gpu", Operator: corev1.TolerationOpExists},
		"gpu:NoExecute":       {Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		"lab=a":               {Key: "lab", Operator: corev1.TolerationOpEqual, Value: "a"},
		"x.y/lab=:NoSchedule": {Key: "x.y/lab", Operator: corev1.TolerationOpEqual, Effect: corev1.TaintEffectNoSchedule},
	} {
		if got, err := ParseToleration(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ":NoSchedule", "gpu:Never"} {
		if got, err := ParseToleration(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestRequestsAreLimitsButForHalfACPU(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settings         Settings
		requests, limits string
	}{
		"one CPU":   {Settings{CPUs: 1, MemoryMB: 2048}, "cpu=500m memory=2Gi", "cpu=1 memory=2Gi"},
		"four CPUs": {Settings{CPUs: 4, GPUs: 2, MemoryMB: 16000}, "cpu=4 memory=16000Mi nvidia.com/gpu=2", "cpu=4 memory=16000Mi nvidia.com/gpu=2"},
		"others":    {Settings{CPUs: 4, GPUs: 1, MemoryMB: 1024, GPUResource: "amd.com/gpu", Devices: []string{"lab/fuse"}}, "amd.com/gpu=1 cpu=4 lab/fuse=1 memory=1Gi", "amd.com/gpu=1 cpu=4 lab/fuse=1 memory=1Gi"},
		"in pods":   {Settings{CPUs: 64, GPUs: 8, MemoryMB: 500000, RunsInPods: true}, "cpu=500m memory=512Mi", "cpu=1 memory=512Mi"},
	} {
		r := test.settings.resources()
		if got := listed(r.Requests); got != test.requests {
			t.Errorf("%s: the requests are %s, want %s", name, got, test.requests)
		}
		if got := listed(r.Limits); got != test.limits {
			t.Errorf("%s: the limits are %s, want %s", name, got, test.limits)
		}
	}
}

func TestWorkerOfPodsKnowsItsShareAndIsRestricted(t *testing.T) {
	t.Parallel()
	b := &Backend{Cluster: &Cluster{Namespace: "lab"}, Manager: "m", Settings: Settings{
		CPUs: 8, GPUs: 2, MemoryMB: 4096, Volume: "disk", WorkDirPrefix: "/mnt", ServiceAccount: "runs", RunsInPods: true, Worker: pilot.Worker{Executable: "cl-worker"},
	}}
	pod := b.pod("cl-worker-1", login{token: "t"})
	spec, worker := pod.Spec, pod.Spec.Containers[0]
	command := strings.Join(worker.Command, " ")
	if !strings.HasSuffix(command, " --bundle-runtime kubernetes --kubernetes-cpus 8 --kubernetes-gpus 2 --max-memory 4096m") || !strings.Contains(command, " --work-dir /mnt/codalab-worker-scratch ") {
		t.Errorf("the command is %s", command)
	}
	var names []string
	for _, e := range worker.Env {
		names = append(names, e.Name)
	}
	if diff := cmp.Diff([]string{"CODALAB_WORKER_TOKEN", "POD_NAME", "POD_NAMESPACE"}, names); diff != "" {
		t.Error(diff)
	}
	if !*spec.AutomountServiceAccountToken || spec.HostUsers != nil || worker.SecurityContext.ProcMount != nil || spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod is %+v", spec)
	}
	if spec.Volumes[0].PersistentVolumeClaim.ClaimName != "disk-claim" || worker.VolumeMounts[0].MountPath != "/mnt" {
		t.Errorf("the volumes are %+v", spec.Volumes)
	}
	if !spec.Tolerations[0].MatchToleration(&corev1.Toleration{Key: DefaultGPUResource, Operator: corev1.TolerationOpExists}) {
		t.Errorf("the tolerations are %+v", spec.Tolerations)
	}
}

// listed prints quantities in the order of their names.
func listed(list corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		parts = append(parts, string(name)+"="+quantity.String())
	}
	return strings.Join(parts, " ")
}
