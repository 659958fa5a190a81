package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// A progress bar is one line of many states, and colours are sequences for a terminal. The file itself stays as it is.
func TestOutputIsShownAsOnATerminal(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.run("x", cpuQueue)
	w := s.worker("alice", "w", "cpu")
	w.takes()
	dir, bar := t.TempDir(), ""
	for i := range 1001 {
		bar += fmt.Sprintf("\r\x1b[32mstep %d\x1b[0m of 1000", i)
	}
	must(t, os.WriteFile(filepath.Join(dir, "stdout"), []byte("\x1b[1mbegin\x1b[0m\n 5%\r10%\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "stderr"), []byte(bar), 0o644))
	w.serve(t, dir, reportOf(uuid, codalab.StateRunning))
	s.await(uuid, codalab.StateRunning)
	a := s.browse(t, "alice")
	a.shows(t, "/bundles/"+uuid, http.StatusOK, `aria-label="stdout">begin`+"\n10%\n</pre>", `aria-label="stderr">step 1000 of 1000</pre>`)
	a.shows(t, "/bundles/"+uuid+"/files/stderr", http.StatusOK, `<pre tabindex="0">step 1000 of 1000</pre>`)
	if got := s.get("alice", "/bundles/"+uuid+"/contents/blob/stderr").ok().body; got != bar {
		t.Errorf("the file is %.200q", got)
	}
	// So does a worksheet.
	home := s.home("alice")
	text := "% display contents /stdout\n[]{" + uuid + "}\n\n% display contents /stderr\n[]{" + uuid + "}\n"
	a.saves(t, home, tagOf(t, a.shows(t, "/worksheets/"+home+"/edit", http.StatusOK)), text, "save", http.StatusSeeOther)
	page := a.shows(t, "/worksheets/"+home, http.StatusOK, "begin\n10%</pre>", ">step 1000 of 1000</pre>")
	if strings.Contains(page, " 5%") || strings.Contains(page, "step 0 of") {
		t.Errorf("the worksheet shows all states: %s", page)
	}
}

// The page of a run tells why there is no output. That of a file takes as long as the API, and has no status of a file that does
// not exist.
func TestPagesTellOfAWorkerThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		a := s.browse(t, "alice")
		w.checkIn(reportOf(uuid, codalab.StateRunning))
		time.Sleep(6 * time.Second)
		const noAnswer = `<p class="problem">It cannot be read now: there was no answer in time.</p>`
		page := a.shows(t, "/bundles/"+uuid, http.StatusOK, noAnswer)
		if strings.Contains(page, `aria-label="stdout"`) {
			t.Errorf("there is an empty output:\n%s", page)
		}
		a.shows(t, "/bundles/"+uuid+"/files/stdout", http.StatusServiceUnavailable,
			"<h1>Worker w, which has bundle "+uuid+", has not been heard of for ", "The run itself may go on. Its files can be read")
		time.Sleep(time.Minute)
		s.await(uuid, codalab.StateWorkerOffline)
		a.shows(t, "/bundles/"+uuid, http.StatusOK, `<p class="problem">It cannot be read now: Worker w, which has bundle `+uuid+", has not been heard of for ")
		a.shows(t, "/bundles/"+uuid+"/files/stdout", http.StatusServiceUnavailable)
	})
}
