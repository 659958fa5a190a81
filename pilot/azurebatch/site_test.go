package azurebatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch/batchtest"
)

// token is that of workers.
const token = "secret-token"

// quick are settings of requests whose repetitions do not wait.
func quick() policy.ClientOptions {
	return policy.ClientOptions{Retry: policy.RetryOptions{MaxRetries: 3, RetryDelay: time.Millisecond, MaxRetryDelay: 2 * time.Second, TryTimeout: testenv.WaitLimit}}
}

// site is a Batch account, a container for logs, and a manager's backend.
type site struct {
	*batchtest.Service
	*azurebatch.Backend
	logs *batchtest.Container
	t    *testing.T // of a table
}

// newSite returns a site with a pool of n nodes.
func newSite(t *testing.T, n int) *site {
	t.Helper()
	s := &site{Service: batchtest.New(t, n), logs: batchtest.NewContainer(t)}
	s.Backend = s.open(t, "codalab")
	return s
}

// open returns a new backend, as after a restart of the manager.
func (s *site) open(t *testing.T, mark string) *azurebatch.Backend {
	t.Helper()
	c, err := azurebatch.NewClient(s.URL, azurebatch.Credential{Account: s.Account, Key: s.Key}, azurebatch.Options{ClientOptions: quick(), Now: time.Now})
	testenv.Must(t, err)
	return &azurebatch.Backend{
		Client: c, Job: s.Service.Job, Mark: mark, Now: time.Now, Every: time.Millisecond, Storage: quick(),
		Shape:  azurebatch.Shape{Image: "lab/cl-worker:1", CPUs: 4, MemoryMB: 8000, User: "root", LogContainer: s.logs.URL},
		Worker: pilot.Worker{Executable: "cl-worker", Server: "http://server:2900", WorkDir: "work", IdleSeconds: 600, Arguments: []string{"--tag", "gpu nodes"}},
	}
}

// start starts a pilot.
func (s *site) start(t *testing.T) pilot.Pilot {
	t.Helper()
	p, err := s.Start(t.Context(), s.NewName(), token)
	testenv.Must(t, err)
	return p
}

// pilots returns the pilots by name.
func (s *site) pilots(t *testing.T) map[string]pilot.Pilot {
	t.Helper()
	list, err := s.Pilots(t.Context())
	testenv.Must(t, err)
	byName := map[string]pilot.Pilot{}
	for _, p := range list {
		byName[p.Name] = p
	}
	return byName
}

// log returns a pilot's log.
func (s *site) log(t *testing.T, p pilot.Pilot) (string, error) {
	t.Helper()
	var text strings.Builder
	err := s.WriteLog(t.Context(), &text, p, false)
	return text.String(), err
}
