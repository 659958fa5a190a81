package awsbatch_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch/awstest"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
)

var (
	moto        testenv.Moto                                    // one for all tests; TestMain stops it
	suiteWorker = testenv.Program{Package: "./testdata/worker"} // built once for all tests
	queues      atomic.Int64                                    // numbers the queues of moto
)

func TestMain(m *testing.M) {
	code := m.Run()
	suiteWorker.Remove()
	if err := moto.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// motoSite is a moto with real containers for the suite.
type motoSite struct{ *awstest.Moto }

func (s motoSite) Open(manager string) pilot.Backend {
	b := open(s.URL, manager)
	b.Queue, b.Definition.Name, b.Definition.Image, b.Definition.HostDir = s.Queue, s.Queue, awstest.Image, s.Dir
	b.Worker.Executable = "/worker"
	return b
}

func (s motoSite) LoseAnswer() { s.Moto.LoseAnswer("SubmitJob") }

func (s motoSite) Vanish(_ *testing.T, name string) { s.Moto.Vanish(name) }

func (s motoSite) Finish(t *testing.T, name string) {
	t.Helper()
	testenv.Must(t, s.Moto.Finish(pilot.WorkerID(name)))
}

// TestSuiteInContainersOfMoto is the suite with real containers, which moto_server starts.
func TestSuiteInContainersOfMoto(t *testing.T) {
	t.Parallel()
	moto.URL(t)
	pilottest.Run(t, func(t *testing.T) pilottest.Site {
		t.Helper()
		m := awstest.NewMoto(t, &moto, suiteWorker.Path(t), fmt.Sprintf("queue-%d", queues.Add(1)))
		m.Page = pilottest.PageSize
		return motoSite{m}
	})
}
