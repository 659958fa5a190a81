package bridge_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// secretService is a server with a secret of one value; an error instead if it has one.
type secretService struct {
	mu    sync.Mutex
	value string
	err   error
	asked []string
}

func (s *secretService) RunSecrets(_ context.Context, worker, bundle string) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, worker+" "+bundle)
	return map[string]string{"A": s.value}, s.err
}

func (s *secretService) set(value string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value, s.err = value, err
}

// withSecret starts a bridge that gets secrets from a service, and offers bundle 1, which names the secret A.
func (s *site) withSecret(service *secretService, command string) (bundle string) {
	s.Helper()
	s.alter = func(b *bridge.Bridge) {
		b.Secrets = &bridge.Secrets{Service: service, Files: spool.Disk{Layout: s.shared, Bridge: s.book.ID}}
	}
	s.start()
	bundle = bundleID(1)
	s.offerWith(bundle, command, func(m *codalab.Message) { m.Bundle.Metadata = codalab.Metadata{codalab.SecretsKey: []string{"A"}} })
	return bundle
}

// given returns the texts of the files with values of secrets.
func (s *site) given() (texts []string) {
	s.Helper()
	files, err := filepath.Glob(filepath.Join(string(s.shared), "spool", "secrets", "*"))
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil {
			texts = append(texts, string(text))
		}
	}
	return texts
}

const secretText = "correct horse battery staple"

// TestSecretIsWrittenJustBeforeTheSubmissionAndGoesWithIt also looks for the value in the ledger. The worker of these tests
// does not take it.
func TestSecretIsWrittenJustBeforeTheSubmissionAndGoesWithIt(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		service := &secretService{value: secretText}
		bundle := s.withSecret(service, "sleep 60")
		s.phase(2*time.Second, bundle, plan.Running)
		if got := s.given(); len(got) != 1 || !strings.Contains(got[0], secretText) {
			s.Errorf("written: %q", got)
		}
		time.Sleep(30 * time.Second) // the bridge looks for files that nobody needs
		if got := s.given(); len(got) != 1 {
			s.Errorf("while the job may read it: %q", got)
		}
		s.result(2*time.Minute, bundle)
		s.within(time.Minute, "the file is gone", func() bool { return len(s.given()) == 0 })
		s.stop()
		if want := "ann-login1-cpu " + bundle; len(service.asked) != 1 || service.asked[0] != want {
			s.Errorf("asked as %q", service.asked)
		}
		for _, path := range []string{s.path, s.path + "-wal"} {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), secretText) {
				s.Errorf("%s has the value", path)
			}
		}
		if s.server.last.Secrets != true {
			s.Error("the bridge does not tell the server that it gives secrets")
		}
	})
}

func TestSecretOfAKilledBundleDoesNotStayOnTheDisk(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		bundle := s.withSecret(&secretService{value: secretText}, "sleep 9999")
		s.phase(2*time.Second, bundle, plan.Running)
		s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundle})
		s.within(time.Minute, "the file is gone", func() bool { return len(s.given()) == 0 })
	})
}

// A crash between the file and the saved decision, or of a bridge with another ledger, leaves a file without a row.
func TestSecretsThatNoRowNeedsAreRemovedAtTheStart(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		disk := spool.Disk{Layout: s.shared}
		for _, err := range []error{disk.GiveSecrets(bundleID(7), "b9.1", map[string]string{"A": secretText}), disk.GiveSecrets(bundleID(1), "b9.2", map[string]string{"A": secretText})} {
			if err != nil {
				s.Fatal(err)
			}
		}
		bundle := s.withSecret(&secretService{value: "another"}, "sleep 60")
		s.phase(2*time.Second, bundle, plan.Running)
		s.within(time.Minute, "the other files are gone", func() bool {
			got := s.given()
			return len(got) == 1 && strings.Contains(got[0], "another")
		})
	})
}

func TestSecretThatTheServerDoesNotGiveIsWaitedForOrFailsTheBundle(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err   error
		fails string // the bundle's sentence; empty if the bridge tries again
	}{
		"removed": {&codalab.Error{Method: "POST", Path: "/workers", Status: http.StatusNotFound, Message: "The secret A has been removed: set it."}, "The secret A has been removed: set it."},
		"away":    {errDown, ""},
		"denied":  {&codalab.Error{Method: "POST", Path: "/workers", Status: http.StatusForbidden, Message: "no"}, ""},
		"trouble": {errors.New("x"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				service := &secretService{err: test.err}
				bundle := s.withSecret(service, "sleep 1")
				if test.fails == "" {
					s.phase(2*time.Second, bundle, plan.Submitting)
					time.Sleep(time.Minute)
					service.set(secretText, nil)
				}
				run := s.result(3*time.Minute, bundle)
				switch {
				case test.fails != "":
					s.wantFailure(run, test.fails)
				case run.FailureMessage != nil:
					s.Errorf("it failed: %s", *run.FailureMessage)
				}
				if wrong := test.fails != "" && s.slurm.submits > 0; wrong {
					s.Error("a job was submitted")
				}
			})
		})
	}
}
