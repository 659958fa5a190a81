package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// transcriptVariable is set to print the transcript: its eight workers keep a machine busy for minutes.
const transcriptVariable = "CLTEST_AZURE_TRANSCRIPT"

// transcript prints lines of several programs as they come, with the seconds since the begin.
type transcript struct {
	t     *testing.T
	begun time.Time
	mu    sync.Mutex
	last  string // of the watching client
}

func (s *transcript) say(who, text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		fmt.Printf("%5.1f  %-9s %s\n", time.Since(s.begun).Seconds(), who, strings.TrimRight(line, "\n"))
	}
}

// Write prints what Microsoft's client has written.
func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say("microsoft", string(p))
	lines := strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(p)), " ", "_"))
	s.last = strings.ReplaceAll(lines[len(lines)-1], "_", " ")
	return len(p), nil
}

// seen returns the last line of Microsoft's client.
func (s *transcript) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// TestTranscriptOfAzureBatch is a session of cl-worker-manager azure-batch, from no worker to eight and back to none, with a
// log, a preemption and a kill. The workers are cl-worker in containers of Docker. Microsoft's own client watches the
// stand-in for the service. `make azure-transcript` prints it.
//
//nolint:paralleltest // its times are those of a session by itself
func TestTranscriptOfAzureBatch(t *testing.T) {
	if os.Getenv(transcriptVariable) == "" {
		t.Skip("the transcript was not asked for: set " + transcriptVariable)
	}
	tools := testenv.AzureTools(t, "../..")
	s := newAzureSite(t, 9, workerTimeout)
	out := &transcript{t: t, begun: time.Now()}
	call := func(words ...string) string {
		out.say("$", "cl-worker-manager … azure-batch … "+strings.Join(words, " "))
		text, err := s.manager(words...).CombinedOutput()
		out.say("", string(text))
		must(t, err)
		return string(text)
	}
	endWatch := tools.Watch(t, "testdata/watchtasks.js", map[string]string{"url": s.URL, "account": s.Account, "key": s.Key, "job": s.Job}, out)
	call("--check")
	call("status")
	var uuids []string
	for range 8 {
		uuids = append(uuids, createRunOf(t, s.api, s.image, "sleep 60"))
	}
	preempted, killed := uuids[0], uuids[1]
	end := s.manage()
	testenv.Await(t, "eight workers run", func() bool { return strings.Contains(out.seen(), "running 8,") })
	first := map[string]client.BundleInfo{}
	for _, uuid := range uuids {
		first[uuid] = s.await(uuid, "the run has begun", func(b client.BundleInfo) bool { return b.State == codalab.StateRunning || b.State.Final() })
	}
	call("status")
	call("logs", preempted)

	task := func(uuid string) string {
		_, id, _ := strings.Cut(first[uuid].Metadata.String("remote"), "host-")
		return id
	}
	out.say("azure", "preempts the node of "+task(preempted))
	s.Preempt(task(preempted))
	again := s.await(preempted, "the run has begun again", func(b client.BundleInfo) bool {
		return b.State == codalab.StateRunning && b.Metadata.Float("started") != first[preempted].Metadata.Float("started")
	})
	if got := again.Metadata.String("remote"); got != first[preempted].Metadata.String("remote") {
		t.Errorf("the run was preempted in %s and runs in %s", first[preempted].Metadata.String("remote"), got)
	}
	call("kill", "--yes", task(killed))
	for _, uuid := range uuids {
		b := s.await(uuid, "the run has ended", func(b client.BundleInfo) bool { return b.State.Final() })
		if b.State != codalab.StateReady {
			t.Errorf("run %s is %s: %v", uuid, b.State, b.Metadata)
		}
	}
	out.say("runs", "8 ready")
	testenv.Await(t, "all workers have ended", func() bool { return len(s.IDs("completed")) == len(s.IDs("")) })
	if text := call("status"); !strings.Contains(text, "no workers") {
		t.Errorf("status says %s", text)
	}
	endWatch()
	end() // it logs the manager's lines
	if last := out.seen(); !strings.HasPrefix(last, "active 0, running 0, completed ") {
		t.Errorf("Microsoft's client sees %s", last)
	}
}
