package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/stocktest"
	"github.com/cl-slurm/cl-slurm/spool"
)

// stockSite is a bridge that serves the stand-in of CodaLab's own server.
type stockSite struct {
	*site
	stock  *stocktest.Server
	client *client.Client
}

// atStock runs a test of a bridge at a stand-in, in a bubble.
func atStock(t *testing.T, f stocktest.Faults, test func(s *stockSite)) {
	t.Helper()
	dir, store := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		stock, err := stocktest.New(stocktest.Options{Dir: store, Users: []stocktest.User{{Name: "ann", Password: "a"}}, Faults: f})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var manager sync.WaitGroup
		manager.Go(func() { stock.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			manager.Wait()
			if err := stock.Close(); err != nil {
				t.Error(err)
			}
		})
		s := &stockSite{site: newSite(t, dir), stock: stock}
		s.client, err = client.New(stocktest.Address, client.Options{
			HTTP:        stock.Client(),
			Credentials: func(context.Context) (string, string, error) { return "ann", "a", nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		s.alter = func(b *bridge.Bridge) {
			b.Service, b.Collector = s.client, uploader{s.client, s.server}
		}
		test(s)
	})
}

// uploader uploads a run's standard output, as its results.
type uploader struct {
	*client.Client
	*fakeServer
}

func (u uploader) Open(run codalab.RunBundle, runDir string) (*os.Root, error) {
	return u.fakeServer.Open(run, runDir)
}

func (u uploader) Collect(ctx context.Context, run codalab.RunBundle, runDir string, _ spool.ResultsMode, _ func(string)) (string, error) {
	f, err := os.Open(filepath.Join(runDir, "stdout"))
	if err != nil {
		return "", err
	}
	err = u.UploadContents(ctx, run.UUID, client.UploadOptions{Filename: "stdout", Confirm: true}, f)
	return "stdout", errors.Join(err, f.Close())
}

// run makes a run on the stand-in.
func (s *stockSite) run(command string) string {
	s.Helper()
	m := codalab.Metadata{}
	for _, k := range codalab.MetadataKeys(codalab.TypeRun) {
		if !k.Generated {
			m[k.Key] = k.Default
		}
	}
	m["name"], m["request_queue"], m["request_docker_image"] = "run", "cpu", "python:3"
	m["request_time"] = "1m" // 60.0 in the message
	b, err := s.client.CreateBundle(s.Context(), client.NewBundle{Worksheet: "0x", Type: codalab.TypeRun, Command: command, Metadata: m})
	if err != nil {
		s.Fatal(err)
	}
	return b.UUID
}

// ready waits until every run is ready, and returns those that were ever called
// offline.
func (s *stockSite) ready(limit time.Duration, runs []string) map[string]bool {
	s.Helper()
	offline := map[string]bool{}
	s.within(limit, fmt.Sprintf("%d runs are ready", len(runs)), func() bool {
		left := 0
		for _, uuid := range runs {
			switch s.stock.State(uuid) {
			case codalab.StateReady:
				continue
			case codalab.StateWorkerOffline:
				offline[uuid] = true
			}
			left++
		}
		return left == 0
	})
	return offline
}

// serve has the bridge do twenty runs, which take up to three seconds. It fails the test unless each
// is ready within a limit, was never offline, had one job, and has its results.
func (s *stockSite) serve(limit time.Duration) []string {
	s.Helper()
	s.start()
	var runs []string
	for n := range 20 {
		runs = append(runs, s.run(fmt.Sprintf("sleep %d", n%4)))
	}
	if offline := s.ready(limit, runs); len(offline) > 0 {
		s.Errorf("%d runs were offline for a while", len(offline))
	}
	s.slurm.change(func() {
		if s.slurm.submits != len(runs) {
			s.Errorf("%d jobs were submitted for %d runs", s.slurm.submits, len(runs))
		}
	})
	for _, uuid := range runs {
		if _, err := s.client.ContentsInfo(s.Context(), codalab.Target{BundleUUID: uuid}, 0); err != nil {
			s.Errorf("the results are missing: %v", err)
		}
	}
	return runs
}

func TestRunsOfTheStockServerBecomeReadyAndNoneIsEverOffline(t *testing.T) {
	t.Parallel()
	atStock(t, stocktest.Faults{}, func(s *stockSite) {
		runs := s.serve(2 * time.Minute)
		for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
			for _, uuid := range runs {
				if state := s.stock.State(uuid); state != codalab.StateReady {
					s.Fatalf("%s became %s", uuid, state)
				}
			}
		}
	})
}

func TestRunsOfTheStockServerBecomeReadyThoughAnswersAreLost(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	faults := stocktest.Faults{LoseAnswer: func(r *http.Request) bool {
		if r.Method != http.MethodPut && !strings.HasPrefix(r.URL.Path, "/rest/workers/") {
			return false
		}
		// After some ten minutes no answer is lost any more: otherwise every offer
		// of one run might be.
		n := served.Add(1)
		return n%5 == 0 && n < 250
	}}
	atStock(t, faults, func(s *stockSite) {
		time.AfterFunc(5*time.Second, func() {
			s.stock.Restart()
			s.stock.DropTokens()
		})
		s.serve(20 * time.Minute) // an offer that was lost is made again after five minutes
	})
}

func TestRunsOfTheStockServerBecomeReadyThoughCheckInsAreLate(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	faults := stocktest.Faults{BeforeCheckIn: func() {
		if served.Add(1)%3 == 0 {
			time.Sleep(4 * time.Second)
		}
	}}
	atStock(t, faults, func(s *stockSite) { s.serve(10 * time.Minute) })
}
