package bridge_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// changing is a stager of linked data that changes while it is used.
type changing struct{ compared *atomic.Int32 }

func (changing) Stage(_ context.Context, _ codalab.RunBundle, reference, _ string, _ func(string)) (spool.Inputs, error) {
	return spool.Inputs{SIF: reference, Dependencies: []spool.Dependency{
		{ChildPath: "data", Source: "/data", InPlace: true, Link: &spool.Link{Path: "/data", Note: "It has changed since long ago."}},
	}}, nil
}

func (c changing) Changed(_ context.Context, in spool.Inputs) string {
	c.compared.Add(1)
	return "The data of " + in.Dependencies[0].Source + " changed."
}

func TestChangeOfLinkedDataIsSaidAndKept(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		var compared atomic.Int32
		s.alter = func(b *bridge.Bridge) { b.Stager = changing{&compared} }
		bundle := s.startWith("sleep 3", plan.Running)
		if got := s.rows()[bundle].RunStatus(); !strings.HasSuffix(got, " It has changed since long ago.") {
			s.Errorf("run_status %q", got)
		}
		s.server.setDown(true) // the results are sent again and again
		s.phase(5*time.Second, bundle, plan.Collecting)
		s.within(time.Minute, "the row has the change", func() bool {
			return strings.Contains(s.rows()[bundle].RunStatus(), "Uploading results; ") && s.rows()[bundle].DataChanged == "The data of /data changed."
		})
		time.Sleep(time.Hour)
		s.server.setDown(false)
		if run := s.result(2*time.Minute, bundle); run.FailureMessage != nil {
			s.Errorf("result %+v, want a success", run)
		}
		if row := s.rows()[bundle]; row.DataChanged == "" {
			s.Errorf("%+v", row)
		}
		s.stop()
		if n := compared.Load(); n != 1 {
			s.Errorf("compared %d times", n)
		}
	})
}
