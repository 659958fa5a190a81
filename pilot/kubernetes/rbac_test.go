package kubernetes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/kubernetes"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
)

// tokenOf returns a token of a service account of the namespace.
func (s *site) tokenOf(account string) string {
	s.t.Helper()
	var answer struct {
		Status struct{ Token string }
	}
	text := s.api(http.MethodPost, s.path("serviceaccounts/"+account+"/token"), map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{"expirationSeconds": 3600}})
	testenv.Must(s.t, json.Unmarshal(text, &answer))
	return answer.Status.Token
}

// as returns a backend with the token of a service account.
func (s *site) as(account string) *kubernetes.Backend {
	s.t.Helper()
	a := s.access()
	a.Token = s.tokenOf(account)
	c, err := kubernetes.Connect(a)
	testenv.Must(s.t, err)
	b := s.backend("lab", "")
	b.Cluster = c
	return b
}

// apply applies the manifests of the documentation.
func (s *site) apply(files ...string) {
	s.t.Helper()
	for _, file := range files {
		cmd := exec.CommandContext(s.t.Context(), "kubectl", "-n", s.namespace, "apply", "-f", "../../docs/kubernetes/"+file)
		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Fatalf("kubectl apply %s: %v: %s", file, err, out)
		}
	}
}

func TestRoleOfTheDocumentationIsEnough(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.apply("rbac.yaml", "token.yaml")
	b := s.as("cl-worker-manager")
	for _, f := range b.Check(t.Context()) {
		if !f.OK {
			t.Errorf("%+v", f)
		}
	}
	if pods := s.pods(); len(pods.Items) > 0 {
		t.Errorf("the check has left pods: %v", pods.Items)
	}
	s.watched(b)
	name := start(t, b)
	p := awaitPhase(t, b, name, pilot.Active)
	if text := logOf(t, b, name); !strings.Contains(text, pilottest.Begun) {
		t.Errorf("the log is %q", text)
	}
	b.Now = later(b.Now)
	unscheduled := s.as("cl-worker-manager")
	unscheduled.Settings.GPUs = 16
	stuck := start(t, unscheduled)
	await(t, b, stuck, "tells its trouble", func(p pilot.Pilot) bool { return strings.Contains(p.Trouble, "Insufficient nvidia.com/gpu") })
	for _, p := range []pilot.Pilot{p, {Name: stuck}} {
		testenv.Must(t, b.Stop(t.Context(), p))
		awaitPhaseOrGone(t, b, p.Name)
	}
	testenv.Must(t, b.Tidy(t.Context(), pilottest.NewToken))
}

func TestTokenOfTheDocumentationIsAccepted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.apply("rbac.yaml", "token.yaml")
	var secret struct{ Data map[string][]byte }
	testenv.Await(t, "the token is there", func() bool {
		_ = json.Unmarshal(s.api(http.MethodGet, s.path("secrets/cl-worker-manager"), nil), &secret)
		return len(secret.Data["token"]) > 0
	})
	a := s.access()
	a.Token, a.Host, a.Cert = string(secret.Data["token"]), s.cluster.config.Host, string(secret.Data["ca.crt"])
	if _, err := connectTo(t, a); err != nil {
		t.Error(err)
	}
}

func TestStrangerIsToldWhichRightIsMissing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as("default")
	user := fmt.Sprintf(`User "system:serviceaccount:%s:default" cannot `, s.namespace)
	const advice = ": the account needs the role of docs/kubernetes/rbac.yaml there, or --namespace has to name another namespace"
	tail := func(verb, resource string) string {
		return user + verb + fmt.Sprintf(` resource %q in API group "" in the namespace %q`, resource, s.namespace) + advice
	}
	_, err := b.Pilots(t.Context())
	if err == nil || err.Error() != "list the workers: pods is forbidden: "+tail("list", "pods") {
		t.Errorf("list: %v", err)
	}
	name := b.NewName()
	var e *kubernetes.Error
	if _, err = b.Start(t.Context(), name, pilottest.Token(name)); !errors.As(err, &e) || e.Transient() || e.Uncertain() || !strings.HasSuffix(err.Error(), tail("create", "pods")) {
		t.Errorf("start: %v", err)
	}
	if err := b.Stop(t.Context(), pilot.Pilot{Name: name}); err == nil || !strings.HasSuffix(err.Error(), tail("delete", "pods")) {
		t.Errorf("stop: %v", err)
	}
	if err := b.WriteLog(t.Context(), &strings.Builder{}, pilot.Pilot{Name: name}, false); err == nil || !strings.HasSuffix(err.Error(), tail("get", "pods/log")) {
		t.Errorf("log: %v", err)
	}
	if _, err := s.watched(b).Pilots(t.Context()); err == nil || !strings.HasSuffix(err.Error(), advice) {
		t.Errorf("watch: %v", err)
	}
	findings := b.Check(t.Context())
	if len(findings) != 9 || !findings[0].OK {
		t.Fatalf("the findings are %v", findings)
	}
	for _, f := range findings[1:] {
		verb, resource, _ := strings.Cut(f.Name, " ")
		if f.OK || !strings.HasSuffix(f.Text, tail(verb, resource)) {
			t.Errorf("%+v", f)
		}
	}
}

// A manager without the right to create Secrets must leave no pod that waits for one.
func TestPodWithoutItsSecretIsRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	s.proxy.answers("POST secrets", http.StatusForbidden)
	name := b.NewName()
	if _, err := b.Start(t.Context(), name, pilottest.Token(name)); err == nil || !strings.HasPrefix(err.Error(), "give worker "+name+" its login: ") {
		t.Errorf("the error is %v", err)
	}
	testenv.Await(t, "the pod is gone", func() bool { return len(s.pods().Items) == 0 })
}

// Admission runs in a dry run, too.
func TestCheckTellsWhatPodsLack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	b.Settings.PriorityClass = "absent"
	for _, f := range b.Check(t.Context()) {
		if refused := f.Name == "create pods"; refused == f.OK || refused && !strings.Contains(f.Text, "no PriorityClass with name absent was found") {
			t.Errorf("%+v", f)
		}
	}
	b.Settings.PriorityClass, b.Cluster.Namespace = "", "absent"
	findings := b.Check(t.Context())
	for _, f := range findings[3:4] {
		if f.OK || f.Text != `namespaces "absent" not found: --namespace has to name one that is there` {
			t.Errorf("%+v", f)
		}
	}
	a := s.access()
	a.Token = "wrong"
	var err error
	b.Cluster, err = kubernetes.Connect(a)
	testenv.Must(t, err)
	if findings := b.Check(t.Context()); len(findings) > 2 || findings[len(findings)-1].OK {
		t.Errorf("the findings are %v", findings)
	}
}
