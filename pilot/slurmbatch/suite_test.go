package slurmbatch_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
	"github.com/cl-slurm/cl-slurm/pilot/slurmbatch"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// suiteWorker is a worker of the suite. It ends when its file "finish" is there.
const suiteWorker = `#!/bin/sh
while [ $# -gt 0 ]; do case $1 in --id) id=$2 ;; --token-file) token=$(cat "$2") ;; esac; shift; done
[ -z "$token" ] || echo "` + pilottest.HasToken + `$token"
trap 'echo "` + pilottest.Done + `"; exit 0' TERM
echo "` + pilottest.Begun + `"
while [ ! -e "${0%/*}/finish-$id" ]; do sleep 0.05; done
echo "` + pilottest.Done + `"
`

// suiteSite is a Slurm for the suite.
type suiteSite struct {
	scheduler sbatch.Scheduler
	dir, name string
	lose      atomic.Bool
}

// losing is a Slurm that can lose the answer to a submission.
type losing struct {
	sbatch.Scheduler
	lose *atomic.Bool
}

// Submit loses the answer of one submission.
func (l losing) Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error) {
	id, err := l.Scheduler.Submit(ctx, r)
	if err == nil && l.lose.CompareAndSwap(true, false) {
		return 0, slurmtest.SubmitError(r.Name, "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", 1)
	}
	return id, err
}

func (s *suiteSite) Open(manager string) pilot.Backend {
	observer := &sbatch.Observer{Scheduler: losing{s.scheduler, &s.lose}, Interval: time.Second, Now: time.Now}
	return &slurmbatch.Backend{
		Slurm: observer, User: s.name, JobName: manager, WorkDir: filepath.Join(s.dir, "work"), Now: time.Now,
		Job:    slurmbatch.Job{CPUs: 1, MemoryMB: 64, Time: time.Hour, Dir: s.dir},
		Worker: slurmbatch.Worker{TakesToken: true, Worker: pilot.Worker{Executable: filepath.Join(s.dir, "cl-worker"), Server: "http://server", WorkDir: "/w"}},
		Login:  func() ([]string, error) { return []string{"--password-file", "/none"}, nil },
	}
}

func (s *suiteSite) LoseAnswer() { s.lose.Store(true) }

func (s *suiteSite) Vanish(t *testing.T, name string) {
	t.Helper()
	snapshot, err := s.scheduler.Observe(t.Context(), time.Now())
	testenv.Must(t, err)
	for _, j := range snapshot.Jobs {
		if j.Name == name {
			testenv.Must(t, s.scheduler.Cancel(t.Context(), name, j.ID))
		}
	}
}

func (s *suiteSite) Finish(t *testing.T, name string) {
	t.Helper()
	testenv.Must(t, os.WriteFile(filepath.Join(s.dir, "finish-"+pilot.WorkerID(name)), nil, 0o600))
}

func openSuite(t *testing.T, scheduler sbatch.Scheduler, dir string) pilottest.Site {
	t.Helper()
	testenv.WriteProgram(t, filepath.Join(dir, "cl-worker"), []byte(suiteWorker))
	return &suiteSite{scheduler: scheduler, dir: dir, name: "suite" + strings.TrimPrefix(codalab.NewUUID(), "0x")[:8]}
}

func TestSuiteOnTheDouble(t *testing.T) {
	t.Parallel()
	pilottest.Run(t, func(t *testing.T) pilottest.Site {
		t.Helper()
		return openSuite(t, slurmtest.NewCluster(t, slurmtest.NewSite()), t.TempDir())
	})
}

func TestSuiteOnARealSlurm(t *testing.T) {
	t.Parallel()
	cluster := testenv.Slurm(t)
	client := &sbatch.Client{Bin: cluster.Bin, Conf: cluster.Conf}
	pilottest.Run(t, func(t *testing.T) pilottest.Site {
		t.Helper()
		s := openSuite(t, client, testenv.SharedDir(t))
		t.Cleanup(func() { endJobs(t, client, s.(*suiteSite).name) })
		return s
	})
}

// endJobs ends the jobs whose names begin with a user's, and waits until they have ended: their directory is removed next.
func endJobs(t *testing.T, client *sbatch.Client, user string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	live := 0
	testenv.Await(t, "the jobs have ended", func() bool {
		snapshot, err := client.Observe(ctx, time.Now())
		testenv.Must(t, err)
		live = 0
		for _, j := range snapshot.Jobs {
			if strings.HasPrefix(j.Name, user+"-") && !j.State.Ended() {
				live++
				testenv.Must(t, client.Cancel(ctx, j.Name, j.ID))
			}
		}
		return live == 0
	}, &live)
}
