package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/kubernetes"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
)

// start starts a pilot.
func start(t *testing.T, b *kubernetes.Backend) string {
	t.Helper()
	name := b.NewName()
	_, err := b.Start(t.Context(), name, pilottest.Token(name))
	testenv.Must(t, err)
	return name
}

// show returns a pilot as the backend shows it; the zero value if it does not.
func show(t *testing.T, b *kubernetes.Backend, name string) pilot.Pilot {
	t.Helper()
	pilots, err := b.Pilots(t.Context())
	testenv.Must(t, err)
	for _, p := range pilots {
		if p.Name == name {
			return p
		}
	}
	return pilot.Pilot{}
}

// await waits for a pilot.
func await(t *testing.T, b *kubernetes.Backend, name, what string, holds func(p pilot.Pilot) bool) pilot.Pilot {
	t.Helper()
	var p pilot.Pilot
	testenv.Await(t, name+" "+what, func() bool {
		p = show(t, b, name)
		return holds(p)
	}, &p)
	return p
}

func awaitPhase(t *testing.T, b *kubernetes.Backend, name string, phase pilot.Phase) pilot.Pilot {
	t.Helper()
	return await(t, b, name, "is "+string(phase), func(p pilot.Pilot) bool { return p.Phase == phase })
}

func logOf(t *testing.T, b *kubernetes.Backend, name string) string {
	t.Helper()
	var text strings.Builder
	testenv.Must(t, b.WriteLog(t.Context(), &text, pilot.Pilot{Name: name}, false))
	return text.String()
}

func TestLostAnswersOfACreationLeaveOnePod(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	s.proxy.mu.Lock()
	s.proxy.lose = 2
	s.proxy.mu.Unlock()
	name := start(t, b)
	if pods := s.pods(); len(pods.Items) != 1 || pods.Items[0].Name != name {
		t.Errorf("the pods are %v", pods.Items)
	}
	if n := s.proxy.count("POST pods"); n != 3 {
		t.Errorf("%d creations were sent, want 3", n)
	}
	awaitPhase(t, b, name, pilot.Active)
}

func TestStartWithoutAnyAnswerIsUncertain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	s.proxy.setDown(true)
	_, err := b.Start(t.Context(), b.NewName(), pilottest.Token(""))
	var doubt pilot.Uncertain
	if !errors.As(err, &doubt) || !doubt.Uncertain() {
		t.Errorf("the error is certain: %v", err)
	}
}

func TestBusyServerIsAskedAgainAndNotForLong(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	s.proxy.answers("POST pods", http.StatusTooManyRequests, http.StatusServiceUnavailable)
	s.proxy.answers("POST secrets", http.StatusServiceUnavailable)
	awaitPhase(t, b, start(t, b), pilot.Active)
	s.proxy.answers("POST pods", 429, 429, 429, 429, 429, 429)
	before := s.proxy.count("POST pods")
	_, err := b.Start(t.Context(), b.NewName(), pilottest.Token(""))
	var e *kubernetes.Error
	if !errors.As(err, &e) || !e.Transient() || e.Uncertain() {
		t.Errorf("the error is %v", err)
	}
	if n := s.proxy.count("POST pods") - before; n != 4 {
		t.Errorf("%d requests, want 4", n)
	}
}

// The kubelet starts no container before its Secret is there.
func TestSecretOfAKilledManagerIsCreatedByTheNext(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	s.proxy.answers("POST secrets", 503, 503, 503, 503) // as if the manager were killed
	name := start(t, b)
	await(t, b, name, "waits for its Secret", func(p pilot.Pilot) bool { return p.Reason == "CreateContainerConfigError" })
	next := s.backend("lab", "")
	awaitPhase(t, next, name, pilot.Pending)
	testenv.Must(t, next.Tidy(t.Context(), pilottest.NewToken))
	awaitPhase(t, next, name, pilot.Active)
	if text := logOf(t, next, name); !strings.Contains(text, `CODALAB_WORKER_TOKEN="token-of-host-`+name+`"`) {
		t.Errorf("the worker printed %q", text)
	}
	secrets := s.proxy.count("POST secrets")
	awaitPhase(t, next, name, pilot.Active)
	testenv.Must(t, next.Tidy(t.Context(), pilottest.NewToken))
	if n := s.proxy.count("POST secrets"); n != secrets {
		t.Errorf("Tidy created the Secret again")
	}
}

func TestSecretThatIsRefusedForLongCostsOneToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	s.proxy.answers("POST secrets", slices.Repeat([]int{http.StatusServiceUnavailable}, 12)...)
	name := start(t, b)
	issue := func(context.Context, string) (string, error) {
		t.Error("a second token is issued")
		return "", nil
	}
	for range 2 {
		awaitPhase(t, b, name, pilot.Pending)
		if err := b.Tidy(t.Context(), issue); err == nil || !strings.Contains(err.Error(), "give worker "+name+" its login: ") {
			t.Errorf("the failure is %v", err)
		}
	}
	awaitPhase(t, b, name, pilot.Pending)
	testenv.Must(t, b.Tidy(t.Context(), issue))
	awaitPhase(t, b, name, pilot.Active)
}

func TestSecretGoesWithItsPod(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	name := start(t, b)
	p := awaitPhase(t, b, name, pilot.Active)
	s.api(http.MethodGet, s.path("secrets/"+name), nil)
	testenv.Must(t, b.Stop(t.Context(), p))
	testenv.Await(t, "the Secret is gone", func() bool {
		code, _ := s.try(http.MethodGet, s.path("secrets/"+name), nil)
		return code == http.StatusNotFound
	})
}

func TestLoginIsInNoPod(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	name := b.NewName()
	_, err := b.Start(t.Context(), name, "")
	testenv.Must(t, err)
	awaitPhase(t, b, name, pilot.Active)
	if text := s.api(http.MethodGet, s.path("pods/"+name), nil); strings.Contains(string(text), "shibboleth") || strings.Contains(string(text), "ann") && strings.Contains(string(text), `"ann"`) {
		t.Errorf("the password is in the pod: %s", text)
	}
	if text := logOf(t, b, name); !strings.Contains(text, "CODALAB_USERNAME=\"ann\"\nCODALAB_PASSWORD=\"shibboleth\"\n") {
		t.Errorf("the worker printed %q", text)
	}
}

func TestQuotaIsWaitedForInTheClustersWords(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	s.api(http.MethodPost, s.path("resourcequotas"), map[string]any{"metadata": map[string]any{"name": "small"}, "spec": map[string]any{"hard": map[string]any{"pods": "1"}}})
	var err error
	testenv.Await(t, "the quota counts", func() bool { // the quota controller notes it first
		_, text := s.try(http.MethodGet, s.path("resourcequotas/small"), nil)
		return strings.Contains(string(text), `"used"`)
	})
	name := start(t, b)
	_, err = b.Start(t.Context(), b.NewName(), pilottest.Token(""))
	var e *kubernetes.Error
	if !errors.As(err, &e) || !e.Transient() || e.Uncertain() || !strings.Contains(err.Error(), "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1") {
		t.Errorf("the error is %v", err)
	}
	testenv.Must(t, b.Stop(t.Context(), show(t, b, name)))
}

func TestImpossiblePodIsRefusedInTheClustersWords(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	long := strings.Repeat("n", 254) // a DNS name has 253 characters
	for words, change := range map[string]func(b *kubernetes.Backend){
		"no PriorityClass with name absent was found":                              func(b *kubernetes.Backend) { b.Settings.PriorityClass = "absent" },
		`error looking up service account ` + s.namespace + `/absent`:              func(b *kubernetes.Backend) { b.Settings.ServiceAccount = "absent" },
		`namespaces "absent" not found: --namespace has to name one that is there`: func(b *kubernetes.Backend) { b.Cluster.Namespace = "absent" },
		`spec.containers[0].image: Invalid value: " x"`:                            func(b *kubernetes.Backend) { b.Settings.Image = " x" },
		`spec.nodeSelector: Invalid value: "a b"`:                                  func(b *kubernetes.Backend) { b.Settings.NodeSelector = map[string]string{"a b": "c"} },
		"no PriorityClass with name " + long:                                       func(b *kubernetes.Backend) { b.Settings.PriorityClass = long },
		`serviceaccount "` + long + `" not found`:                                  func(b *kubernetes.Backend) { b.Settings.ServiceAccount = long },
		"spec.nodeSelector":                   func(b *kubernetes.Backend) { b.Settings.NodeSelector = map[string]string{"a": long} },
		`namespaces "` + long + `" not found`: func(b *kubernetes.Backend) { b.Cluster.Namespace = long },
	} {
		b := s.backend("lab", "")
		change(b)
		name := b.NewName()
		_, err := b.Start(t.Context(), name, pilottest.Token(name))
		var e *kubernetes.Error
		if !errors.As(err, &e) || e.Transient() || e.Uncertain() || !strings.Contains(err.Error(), words) {
			t.Errorf("want %s\n%v", words, err)
		}
	}
}

// The namespaces of all tests enforce the standard baseline.
func TestWorkerOfPodsFitsTheStandardRestricted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.patchAt("/api/v1/namespaces/"+s.namespace, `{"metadata":{"labels":{"`+enforce+`":"restricted"}}}`)
	b := s.backend("lab", "")
	for _, inPods := range []bool{true, false} {
		b.Settings.RunsInPods, b.Settings.Volume = inPods, "lab"
		for _, f := range b.Check(t.Context()) {
			if f.Name == "create pods" && (f.OK != inPods || !inPods && !strings.Contains(f.Text, `violates PodSecurity "restricted:latest"`)) {
				t.Errorf("in pods: %v: %+v", inPods, f)
			}
		}
	}
}

func TestPodAsksForWhatItsFlagsSay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	b.Settings.GPUs, b.Settings.MemoryMB, b.Settings.Devices = 1, 100, []string{"smarter-devices/fuse"}
	b.Settings.Tolerations = []corev1.Toleration{{Key: "lab", Operator: corev1.TolerationOpExists}}
	name := start(t, b)
	var pod corev1.Pod
	testenv.Must(t, json.Unmarshal(s.api(http.MethodGet, s.path("pods/"+name), nil), &pod))
	r := pod.Spec.Containers[0].Resources
	if r.Limits.Cpu().MilliValue() != 1000 || r.Limits.Memory().Value() != 100<<20 || r.Requests.Memory().Value() != 100<<20 {
		t.Errorf("the resources are %v", r)
	}
	if gpus := r.Limits[kubernetes.DefaultGPUResource]; gpus.Value() != 1 {
		t.Errorf("the GPUs are %v", r)
	}
	tolerated := map[string]bool{}
	for _, toleration := range pod.Spec.Tolerations {
		tolerated[toleration.Key] = true
	}
	if !tolerated["lab"] || !tolerated["nvidia.com/gpu"] {
		t.Errorf("the tolerations are %v", pod.Spec.Tolerations)
	}
	if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("the pod is %+v", pod.Spec)
	}
	if p := awaitPhase(t, b, name, pilot.Active); p.Node != "n2" || time.Since(p.Since) > testenv.WaitLimit {
		t.Errorf("the pilot is %+v; only n2 has GPUs", p)
	}
	testenv.Must(t, b.Stop(t.Context(), show(t, b, name)))
}
