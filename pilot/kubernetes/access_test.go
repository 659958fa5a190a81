package kubernetes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/kubernetes"
)

// connectTo lists the pilots of an access.
func connectTo(t *testing.T, a kubeclient.Access) ([]pilot.Pilot, error) {
	t.Helper()
	c, err := kubernetes.Connect(a)
	testenv.Must(t, err)
	return (&kubernetes.Backend{Cluster: c, Manager: "lab", Now: time.Now}).Pilots(t.Context())
}

// CodaLab's page gives --cert-path alone, and its docker-compose file /dev/null and --cert.
func TestEitherOfCertAndCertPathSuffices(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := s.cluster.config.CAFile
	text, err := os.ReadFile(file)
	testenv.Must(t, err)
	tokenFile := filepath.Join(t.TempDir(), "token")
	testenv.Must(t, os.WriteFile(tokenFile, []byte(s.cluster.config.BearerToken+"\n"), 0o600))
	escaped := strings.ReplaceAll(string(text), "\n", `\n`)
	for name, a := range map[string]kubeclient.Access{
		"a path":             {CertPath: file},
		"a path and no text": {CertPath: file, Cert: "/dev/null"},
		"a text and no path": {CertPath: "/dev/null", Cert: escaped},
		"a text":             {Cert: string(text)},
	} {
		a.Host, a.TokenFile, a.Namespace = strings.TrimPrefix(s.cluster.config.Host, "https://"), tokenFile, s.namespace
		if _, err := connectTo(t, a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
