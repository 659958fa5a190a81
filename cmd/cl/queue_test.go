package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// queueCommand checks in for a queue of a bridge: queue USER TAG [default] [GROUP]. Its nodes have 64 CPUs, 4 GPUs
// and 256g of memory, and a run may have two days.
func queueCommand(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: queue USER TAG [default] [GROUP]")
	}
	user, tag := args[0], args[1]
	api, err := client.New(ts.Getenv("SERVER"), client.Options{
		Credentials: func(context.Context) (string, string, error) { return user, password, nil },
	})
	ts.Check(err)
	in := codalab.CheckIn{
		Tag: tag, TagExclusive: true, Instance: "b", CPUs: 1000, GPUs: 100, MemoryBytes: 1 << 50, FreeDiskBytes: 1 << 50,
		ExitAfterNumRuns: codalab.UnlimitedRuns, Dependencies: [][2]string{}, Reports: []codalab.RunReport{},
		Nodes: []codalab.NodeSize{{CPUs: 64, GPUs: 4, MemoryBytes: 256 << 30}},
		Queue: &codalab.QueueInfo{
			GPUTypes: map[string]int64{"a100": 4}, MaxSeconds: 2 * 86400, DefaultSeconds: 3600, CPUImage: "python:3.12", GPUImage: "pytorch:2.4",
			Running: 12, Waiting: 3, Nodes: 8, IdleNodes: 2, WaitSeconds: new(int64(95)),
		},
	}
	for _, word := range args[2:] {
		if word == "default" {
			in.TagExclusive = false
		} else {
			in.GroupName = &word
		}
	}
	slot, ok := ts.Value(workerKey{}).(*scriptWorker)
	if !ok {
		ts.Fatalf("no server")
	}
	done := make(chan struct{})
	ctx, stop := context.WithCancel(slot.ctx)
	go func() { // the server holds the check-in
		defer close(done)
		_, _ = api.CheckIn(ctx, "bridge-"+tag, in) // the check below tells whether it came
	}()
	ts.Defer(func() { stop(); <-done })
	if !testenv.Poll(func() bool {
		queues, err := api.Queues(slot.ctx)
		ts.Check(err)
		return slices.ContainsFunc(queues, func(q codalab.Queue) bool { return q.Tag == tag })
	}) {
		ts.Fatalf("the server does not know queue %s", tag)
	}
}

// TestQueuesOfCodaLabsOwnServerAreTheWorkersThatItShows, and cl says that these are not all.
func TestQueuesOfCodaLabsOwnServerAreTheWorkersThatItShows(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/rest/oauth2/token":
			_, _ = io.WriteString(w, `{"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}`)
		case "/rest/workers/info":
			_, _ = io.WriteString(w, `{"data": [
				{"worker_id": "b-gpu", "tag": "gpu", "tag_exclusive": true, "cpus": 128, "gpus": 8, "memory_bytes": 274877906944, "run_uuids": ["0x1", "0x2"]},
				{"worker_id": "w1", "tag": null, "cpus": 4, "gpus": 0, "memory_bytes": 8589934592, "run_uuids": []},
				{"worker_id": "w2", "tag": null, "cpus": 4, "gpus": 0, "memory_bytes": 8589934592, "run_uuids": ["0x3"]}]}`)
		default:
			http.Error(w, "Not found: '"+strings.TrimPrefix(r.URL.Path, "/rest")+"'", http.StatusNotFound)
		}
	}))
	defer web.Close()
	call := func(args ...string) (stdout, stderr string) {
		t.Helper()
		var out, notes bytes.Buffer
		err := run(t.Context(), program.Process{
			Args: args, Stdout: &out, Stderr: &notes, Now: time.Now,
			Getenv: func(name string) string {
				return map[string]string{"CL_SERVER": web.URL, "CODALAB_USERNAME": userName, "CODALAB_PASSWORD": password, "CODALAB_HOME": t.TempDir()}[name]
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return out.String(), notes.String()
	}
	out, notes := call("queues")
	if !strings.Contains(out, "(no name) (default)  4 CPUs, 8g") || !strings.Contains(out, "gpu                  128 CPUs, 256g, 8 GPUs") || !strings.Contains(out, "2 running") {
		t.Errorf("%s", out)
	}
	if !strings.HasPrefix(notes, "cl: "+web.URL+" is CodaLab's own server, or an old cl-server: it shows your own workers and those of your groups alone.") {
		t.Errorf("%s", notes)
	}
	if out, _ := call("__complete", "run", "--request-queue", ""); !strings.HasPrefix(out, "gpu\t128 CPUs, 256g, 8 GPUs\n:") {
		t.Errorf("completed with %q", out)
	}
}
