package kubernetes_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/kubernetes"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
)

func TestEndOfAWorkerIsExplained(t *testing.T) {
	t.Parallel()
	for behaviour, want := range map[string]string{
		"exit=3":  "Failed exit code 3",
		"lines=1": "Succeeded exit code 0",
		"eat":     "Failed OOMKilled, exit code 137",
		"fill=20": "Failed Evicted: Usage of EmptyDir volume \"work\" exceeds the limit \"10Mi\".",
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			b := s.backend("lab", behaviour)
			b.Settings.WorkDirBytes = 10 << 20
			p := awaitPhase(t, b, start(t, b), pilot.Ended)
			// The kubelet and the end of the container race for the phase of an evicted pod.
			got := strings.Replace(p.State+" "+strings.TrimSpace(p.Reason), "Succeeded Evicted", "Failed Evicted", 1)
			// On a busy node containerd learns of the end before it learns of its reason, and Kubernetes keeps the first word.
			late := behaviour == "eat" && got == "Failed exit code 137"
			if got != want && !late || p.Cancelled {
				t.Errorf("%q, want %q; cancelled: %v", got, want, p.Cancelled)
			}
		})
	}
}

func TestTroubleOfAPendingPodIsToldInTheClustersWords(t *testing.T) {
	t.Parallel()
	for words, change := range map[string]func(b *kubernetes.Backend){
		"InvalidImageName: Failed to apply default image tag":             func(b *kubernetes.Backend) { b.Settings.Image = "Not An Image" },
		"ImagePullBackOff: Back-off pulling image \"127.0.0.1:1/none:1\"": func(b *kubernetes.Backend) { b.Settings.Image = "127.0.0.1:1/none:1" },
		"Insufficient nvidia.com/gpu":                                     func(b *kubernetes.Backend) { b.Settings.GPUs = 16 },
		"persistentvolumeclaim \"absent-claim\" not found":                func(b *kubernetes.Backend) { b.Settings.Volume = "absent" },
		"node(s) didn't match Pod's node affinity/selector":               func(b *kubernetes.Backend) { b.Settings.NodeSelector = map[string]string{"zone": "moon"} },
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			b := s.backend("lab", "")
			change(b)
			p := await(t, b, start(t, b), "tells its trouble", func(p pilot.Pilot) bool { return strings.Contains(p.Trouble, words) })
			if p.Phase != pilot.Pending || p.Patience > time.Hour {
				t.Errorf("the pilot is %+v", p)
			}
			testenv.Must(t, b.Stop(t.Context(), p))
			awaitPhaseOrGone(t, b, p.Name)
		})
	}
}

// awaitPhaseOrGone waits until a pilot is no capacity any more.
func awaitPhaseOrGone(t *testing.T, b *kubernetes.Backend, name string) {
	t.Helper()
	await(t, b, name, "has ended", func(p pilot.Pilot) bool { return p.Phase == pilot.Ended || p.Name == "" })
}

func TestMissingSecretIsTroubleInTheKubeletsWords(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	s.proxy.answers("POST secrets", 503, 503, 503, 503)
	name := start(t, b)
	await(t, b, name, "tells its trouble", func(p pilot.Pilot) bool {
		return p.Trouble == `CreateContainerConfigError: secret "`+name+`" not found`
	})
	testenv.Must(t, b.Tidy(t.Context(), pilottest.NewToken))
	if p := awaitPhase(t, b, name, pilot.Active); p.Trouble != "" {
		t.Errorf("an active pilot has trouble: %+v", p)
	}
}

// Only events tell that a volume cannot be mounted, and that a node has no user namespaces.
func TestTroubleThatOnlyEventsTellIsTold(t *testing.T) {
	t.Parallel()
	for words, change := range map[string]func(s *site, b *kubernetes.Backend){
		"FailedMount: MountVolume.SetUp failed for volume \"": func(s *site, b *kubernetes.Backend) {
			s.volume("lab", "/no/such/directory")
			b.Settings.Volume = "lab"
		},
		"FailedCreatePodSandBox: ": func(_ *site, b *kubernetes.Backend) {
			b.Settings.NodeSelector = map[string]string{"kubernetes.io/hostname": "n1"}
		},
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			b := s.backend("lab", "")
			change(s, b)
			name := start(t, b)
			p := await(t, b, name, "tells its trouble", func(p pilot.Pilot) bool {
				b.Now = later(b.Now) // so that the backend asks for events
				return strings.Contains(p.Trouble, words)
			})
			t.Log(p.Trouble)
		})
	}
}

// The volume is the place of the work directory for all workers.
func TestWorkersShareAVolume(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := testenv.SharedDir(t)
	testenv.Must(t, os.Chmod(dir, 0o777))
	s.volume("lab", dir)
	b := s.backend("lab", "fill=1")
	b.Settings.Volume = "lab"
	first := start(t, b)
	awaitPhase(t, b, first, pilot.Active)
	testenv.AwaitFile(t, filepath.Join(dir, "large"))
	s.finish(first)
	awaitPhase(t, b, first, pilot.Ended)
	b.Settings.Worker.Arguments = []string{"--tag", "show"}
	second := start(t, b)
	awaitPhase(t, b, second, pilot.Ended)
	if text := logOf(t, b, second); !strings.Contains(text, "the volume has 1048576 bytes in large") {
		t.Errorf("the worker printed %s", text)
	}
}

// volume makes a volume of a directory of the nodes, and its claim.
func (s *site) volume(name, dir string) {
	s.t.Helper()
	volume := s.namespace + "-" + name
	s.api(http.MethodPost, "/api/v1/persistentvolumes", map[string]any{
		"metadata": map[string]any{"name": volume},
		"spec": map[string]any{
			"capacity": map[string]any{"storage": "1Gi"}, "accessModes": []string{"ReadWriteMany"}, "storageClassName": "",
			"hostPath": map[string]any{"path": dir, "type": "Directory"}, "persistentVolumeReclaimPolicy": "Retain",
			"claimRef": map[string]any{"namespace": s.namespace, "name": name + "-claim"},
		},
	})
	s.t.Cleanup(func() { s.try(http.MethodDelete, "/api/v1/persistentvolumes/"+volume, nil) })
	s.api(http.MethodPost, s.path("persistentvolumeclaims"), map[string]any{
		"metadata": map[string]any{"name": name + "-claim"},
		"spec": map[string]any{
			"accessModes": []string{"ReadWriteMany"}, "storageClassName": "", "volumeName": volume,
			"resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
		},
	})
}

// later returns a clock that is a minute ahead.
func later(now func() time.Time) func() time.Time {
	at := now().Add(time.Minute)
	return func() time.Time { return at }
}

func TestDeletedPodIsNoCapacityAlthoughItStays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	name := start(t, b)
	p := awaitPhase(t, b, name, pilot.Active)
	s.patch("pods/"+name, `{"metadata":{"finalizers":["cl-slurm.example/stay"]}}`)
	testenv.Must(t, b.Stop(t.Context(), p))
	p = awaitPhase(t, b, name, pilot.Ended)
	if !p.Cancelled {
		t.Errorf("the pilot is %+v", p)
	}
	testenv.Must(t, b.Stop(t.Context(), p))
	await(t, b, name, "stays", func(p pilot.Pilot) bool { return p.Phase == pilot.Ended && p.State == "Succeeded" })
}

func TestEvictedPodHasEndedAndIsNotCancelled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	name := start(t, b)
	awaitPhase(t, b, name, pilot.Active)
	s.patch("pods/"+name, `{"metadata":{"finalizers":["cl-slurm.example/stay"]}}`)
	s.api(http.MethodPost, s.path("pods/"+name+"/eviction"), map[string]any{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": name}})
	p := awaitPhase(t, b, name, pilot.Ended)
	if p.Cancelled || !strings.HasPrefix(p.Reason, "EvictionByEvictionAPI: ") {
		t.Errorf("the pilot is %+v", p)
	}
}

func TestEndedPodsGoAfterAnHourWithTheirLogs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "lines=3")
	name, running := start(t, b), ""
	awaitPhase(t, b, name, pilot.Ended)
	b.Settings.Worker.Arguments = nil
	running = start(t, b)
	awaitPhase(t, b, running, pilot.Active)
	testenv.Must(t, b.Tidy(t.Context(), pilottest.NewToken))
	if text := logOf(t, b, name); !strings.Contains(text, "line 2\n") {
		t.Errorf("the log is %q", text)
	}
	b.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	testenv.Must(t, b.Tidy(t.Context(), pilottest.NewToken))
	await(t, b, name, "is removed", func(p pilot.Pilot) bool { return p.Name == "" })
	if p := show(t, b, running); p.Phase != pilot.Active {
		t.Errorf("the running pilot is %+v", p)
	}
}
