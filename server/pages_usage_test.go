package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// usedReport is a report of a run that has kept half a processor busy for twenty seconds.
func usedReport(run string) codalab.RunReport {
	return codalab.RunReport{
		UUID: run, State: codalab.StateRunning, ContainerTimeTotal: 20, ContainerTimeUser: 10, Usage: &codalab.UsageNow{MemoryBytes: 3 << 30},
	}
}

func TestUseOfARunFollowsItsWorker(t *testing.T) {
	t.Parallel()
	s, w, run := claimedRun(t)
	w.checkIn(usedReport(run)) // and it answers no reads, for which the use does not wait
	web := httptest.NewServer(s.handler)
	t.Cleanup(web.Close)
	stream := s.browse(t, "alice").opens(t, web.URL, "/bundles/"+run+"/events")
	if got := stream.next("usage-charts"); !strings.Contains(got, `"name":"CPUs","x":[`) || !strings.Contains(got, `"name":"Memory in GiB"`) || !strings.Contains(got, `"name":"limit"`) {
		t.Errorf("the charts are %s", got)
	}
	if got := stream.next("usage"); !strings.Contains(got, "CPUs: 0.5 of 1 on average. Memory: at most 3g") {
		t.Errorf("the sentence is %s", got)
	}
}

func TestUseOfARunIsOnItsPageAfterItsEnd(t *testing.T) {
	t.Parallel()
	s, w, run := claimedRun(t)
	s.makeReaders()
	report, code := usedReport(run), 0
	w.checkIn(report)
	report.State, report.ExitCode = codalab.StateFinalizing, &code
	w.checkIn(report)
	a := s.browse(t, "alice")
	a.shows(t, "/bundles/"+run, http.StatusOK, "Use over time", "CPUs: 0.5 of 1 on average", "at most 3g", `"name":"CPUs"`, "cl info --usage "+run)
	if body := a.shows(t, "/bundles/"+s.subject().data, http.StatusOK); strings.Contains(body, "Use over time") {
		t.Error("a dataset used something")
	}
}
