package kubernetes_test

import (
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/kubernetes"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
)

// spareNode calls scripts/kubernetes spare-node.
func (s *site) spareNode(verb string) {
	s.t.Helper()
	if out, err := exec.Command(s.cluster.script, "spare-node", verb).CombinedOutput(); err != nil {
		s.t.Fatalf("spare-node %s: %v: %s", verb, err, out)
	}
}

// checkFilter checks that the kubelet of n3 gives pods a filter of system calls (seccompDefault), which Unconfined turns off.
func checkFilter(t *testing.T, b *kubernetes.Backend) {
	t.Helper()
	settings := b.Settings
	defer func() { b.Settings = settings }()
	b.Settings.Worker.Arguments = []string{"--tag", "filter"}
	for unconfined, want := range map[bool]string{false: "Seccomp: 2\n", true: "Seccomp: 0\n"} {
		b.Settings.Unconfined = unconfined
		name := start(t, b)
		awaitPhase(t, b, name, pilot.Ended)
		if text := logOf(t, b, name); !strings.Contains(text, want) {
			t.Errorf("unconfined %v: %s", unconfined, text)
		}
	}
}

// A node loses its network for longer than the cluster's grace of 50 seconds, and comes back. Then it is gone for good.
func TestWorkerOfALostNodeIsLostUntilTheNodeComesBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.spareNode("up")
	t.Cleanup(func() { s.spareNode("down") })
	s.image = loadImage(t, s.cluster) // for the new node
	b := s.watched(s.backend("lab", ""))
	b.Settings.NodeSelector = map[string]string{"kubernetes.io/hostname": "n3"}
	b.Settings.Tolerations = []corev1.Toleration{{Key: "cl-slurm/spare", Operator: corev1.TolerationOpExists}}
	s.patchAt("/api/v1/namespaces/"+s.namespace, `{"metadata":{"labels":{"`+enforce+`":"privileged"}}}`) // baseline permits no Unconfined
	checkFilter(t, b)
	name := start(t, b)
	before := awaitPhase(t, b, name, pilot.Active)
	s.spareNode("cut")
	p := awaitPhase(t, b, name, pilot.Lost)
	if !strings.HasPrefix(p.Reason, "node n3 is not ready since ") || p.Node != "n3" || p.State != "Unknown" {
		t.Errorf("the pilot is %+v", p)
	}
	testenv.Must(t, b.Tidy(t.Context(), pilottest.NewToken)) // which leaves its pod and its Secret
	s.spareNode("up")
	if p = awaitPhase(t, b, name, pilot.Active); p != before {
		t.Errorf("the pilot is %+v, want %+v", p, before)
	}
	s.spareNode("down") // the cluster removes the pods of a node that is gone
	await(t, b, name, "is gone", func(p pilot.Pilot) bool { return p.Name == "" })
}
