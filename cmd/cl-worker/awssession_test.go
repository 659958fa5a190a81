package main

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// instanceMetadata is the metadata service of instances, as each sees its own: a session is an instance. It refuses
// requests without a session (EC2 user guide, IMDSv2), and answers 404 until the session's instance is taken back (Spot
// Instance interruption notices).
type instanceMetadata struct {
	URL string

	mu       sync.Mutex
	sessions []string // those that have asked for a notice, the last one last
	taken    string   // the session whose instance is taken back
}

func newInstanceMetadata(t *testing.T) *instanceMetadata {
	t.Helper()
	m := &instanceMetadata{}
	web := httptest.NewServer(m)
	t.Cleanup(web.Close)
	m.URL = web.URL
	return m
}

func (m *instanceMetadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	session := r.Header.Get("X-aws-ec2-metadata-token")
	switch {
	case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") != "":
		_, _ = w.Write([]byte("session-" + codalab.NewUUID()))
	case !strings.HasPrefix(session, "session-"):
		http.Error(w, "", http.StatusUnauthorized)
	case r.URL.Path != "/latest/meta-data/spot/instance-action":
		http.NotFound(w, r)
	case session == m.taken:
		_, _ = w.Write([]byte(`{"action": "terminate", "time": "` + time.Now().Add(2*time.Minute).UTC().Format(time.RFC3339) + `"}`))
	default:
		if !slices.Contains(m.sessions, session) {
			m.sessions = append(m.sessions, session)
		}
		http.NotFound(w, r)
	}
}

// takeBack takes back the instance that has asked last.
func (m *instanceMetadata) takeBack() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken = m.sessions[len(m.sessions)-1]
}

// asked returns the number of instances that have asked.
func (m *instanceMetadata) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sessions)
}

// sessionRuns is the number of runs, and of workers at the same time, of the session.
const sessionRuns = 8

// awaitRunning waits until all runs run, and returns their workers.
func (s *awsSite) awaitRunning(uuids []string) (remotes []string) {
	s.t.Helper()
	for _, uuid := range uuids {
		b := s.await(uuid, "the run has begun", func(b client.BundleInfo) bool { return b.State == codalab.StateRunning })
		remotes = append(remotes, b.Metadata.String("remote"))
	}
	return remotes
}

// awaitElsewhere waits until exactly one run runs in another worker than before, and returns its number and the workers.
func (s *awsSite) awaitElsewhere(uuids, before []string) (moved int, after []string) {
	s.t.Helper()
	testenv.Await(s.t, "a run has begun elsewhere", func() bool {
		after = nil
		for _, uuid := range uuids {
			b, err := s.api.Bundle(s.t.Context(), uuid)
			must(s.t, err)
			if b.State != codalab.StateRunning {
				return false
			}
			after = append(after, b.Metadata.String("remote"))
		}
		return !slices.Equal(before, after)
	}, &after)
	var changed []int
	for i := range uuids {
		if before[i] != after[i] {
			changed = append(changed, i)
		}
	}
	if len(changed) != 1 {
		s.t.Fatalf("the runs %v have moved: %q, before %q", changed, after, before)
	}
	return changed[0], after
}

// TestSessionInAWSBatch is a session with the workers' image as "make worker-image" builds it; -v prints it. No worker
// runs; eight runs start eight; the owner ends one, which gets TERM from AWS Batch; EC2 takes the instance of another one
// back. The runs of both begin again in new workers. All runs end, and no worker is left.
func TestSessionInAWSBatch(t *testing.T) {
	t.Parallel()
	metadata := newInstanceMetadata(t)
	s := newAWSSite(t, func(s *awsSite) {
		w := newWorkersImage(t, &s.moto.Docker)
		build := w.command("build", "--tag", "lab/cl-worker:1", "-")
		// moto applies no user of a definition; root is --user's default.
		build.Stdin = strings.NewReader("FROM " + w.name + "\nUSER root\nENV AWS_EC2_METADATA_SERVICE_ENDPOINT=" + metadata.URL + "\n")
		if said, err := build.CombinedOutput(); err != nil {
			t.Fatalf("docker build: %v: %s", err, said)
		}
	})
	if out := s.call("status"); !strings.Contains(out, "no workers") {
		t.Errorf("before the first run: %s", out)
	}
	var uuids []string
	for range sessionRuns {
		uuids = append(uuids, createRunOf(t, s.api, s.image, "echo began; until [ -e go ]; do sleep 0.2; done; echo over"))
	}
	end := s.manage()
	first := s.awaitRunning(uuids)
	status := s.call("status")
	if n := len(regexp.MustCompile(`(?m) RUNNING +- +0123456789abcdef .* 1 +1/1 `).FindAllString(status, -1)); n != sessionRuns {
		t.Errorf("%d workers run: %s", n, status)
	}

	// The owner ends a worker. It gives its run back before AWS Batch sends KILL.
	killed := first[0][strings.LastIndex(first[0], "_")+1:]
	if out := s.call("kill", killed, "--yes"); !strings.Contains(out, uuids[0]) {
		t.Errorf("kill says %s", out)
	}
	moved, second := s.awaitElsewhere(uuids, first)
	if moved != 0 {
		t.Errorf("run %d has moved", moved)
	}
	if out := s.call("logs", "--follow", killed); !strings.Contains(out, "the worker gives its runs back to the server") {
		t.Errorf("the log of the ended worker is %s", out)
	}

	// EC2 takes an instance back.
	testenv.Await(t, "each worker has asked for a notice", func() bool { return metadata.asked() > sessionRuns })
	metadata.takeBack()
	moved, third := s.awaitElsewhere(uuids, second)
	taken := second[moved][strings.LastIndex(second[moved], "_")+1:]
	if out := s.call("logs", "--follow", taken); !strings.Contains(out, "EC2 takes this instance back") || !strings.Contains(out, "the worker gives its runs back to the server") {
		t.Errorf("the log of the worker on the instance is %s", out)
	}

	for _, uuid := range uuids {
		must(t, s.api.WriteToBundle(t.Context(), codalab.Target{BundleUUID: uuid, Subpath: "go"}, "now"))
	}
	if remotes := s.awaitReady(uuids); len(remotes) != sessionRuns {
		t.Errorf("the runs ended in %v, and ran in %v", remotes, third)
	}
	s.awaitNoWorkers()
	log := end()
	if n := strings.Count(log, "started a worker"); n != sessionRuns+2 || strings.Contains(log, scriptPassword) {
		t.Errorf("%d workers were started", n)
	}
	if !regexp.MustCompile(`worker has ended.*` + killed + `.*state=FAILED reason="ended by cl-worker-manager \(exit code (0|143)\)"`).MatchString(log) {
		t.Error("the log does not tell that the worker ended in order")
	}
}
