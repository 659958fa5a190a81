package azurebatch_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// source is the way to the project's directory.
const source = "../.."

// TestMicrosoftsClientReadsTheStandIn lets Microsoft's client for JavaScript make the calls that package azurebatch makes.
// Each of its requests has a signature, which the stand-in verifies; it finds no property in the answers, nor in the
// task that the backend has added, that its models do not have.
func TestMicrosoftsClientReadsTheStandIn(t *testing.T) {
	t.Parallel()
	tools := testenv.AzureTools(t, source)
	s := newSite(t, 3)
	var names []string
	for range 5 {
		names = append(names, s.start(t).Name)
	}
	running := names[0]
	s.Print(running, "stderr.txt", "one\ntwo\n")
	node := s.pilots(t)[running].Node
	added, _ := s.Service.Task(running)
	input := map[string]any{
		"url": s.URL, "account": s.Account, "key": s.Key, "job": s.Service.Job, "pool": s.Pool, "added": []any{added}, "running": running,
	}
	var got struct {
		Job, Pool, NodeCounts, File, Tail, Ended string
		Nodes, Listed                            []string
		Pages                                    []int
		Counts                                   map[string]int
		Task                                     map[string]any
		Refusals                                 map[string]string
	}
	tools.Run(t, "testdata/microsoft.js", input, &got)
	wantListed := []string{}
	for i, name := range names {
		wantListed = append(wantListed, name+" "+map[bool]string{true: "running", false: "active"}[i < 3])
	}
	slices.Sort(wantListed)
	want := got
	want.Job, want.Pool, want.NodeCounts, want.File, want.Tail, want.Ended = "active", "standard_d4d_v5 3 steady", "3 3", "one\ntwo\n", "two\n", "completed failure TaskEnded"
	want.Nodes, want.Listed, want.Pages = []string{"running", "running", "running"}, wantListed, []int{2, 2, 1}
	want.Counts = map[string]int{"active": 2, "running": 3, "completed": 0, "succeeded": 0, "failed": 0}
	want.Task = map[string]any{"command": added["commandLine"], "image": "lab/cl-worker:1", "output": 2.0, "node": node, "retries": 0.0}
	want.Refusals = map[string]string{
		"again": "409 TaskExists", "task": "404 TaskNotFound", "job": "404 JobNotFound", "file": "404", "filter": "400 InvalidQueryParameterValue",
		"ended": "409 TaskCompleted", "deleted": "404 TaskNotFound", "key": "403 AuthenticationFailed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestLogsInARealContainer reads logs from Microsoft's emulator of Azure Storage, with SAS that Microsoft's client has
// made.
func TestLogsInARealContainer(t *testing.T) {
	t.Parallel()
	tools := testenv.AzureTools(t, source)
	account := map[string]any{"url": tools.Azurite(t), "account": testenv.AzuriteAccount, "key": testenv.AzuriteKey, "container": "logs"}
	sas := func(permissions string, minutes int) string {
		input := map[string]any{"permissions": permissions, "minutes": minutes}
		for name, value := range account {
			input[name] = value
		}
		var made struct{ URL string }
		tools.Run(t, "testdata/container.js", input, &made)
		return made.URL
	}
	s := newSite(t, 1)
	s.Shape.LogContainer = sas("rcw", 60)
	for _, f := range s.Check(t.Context()) {
		if !f.OK {
			t.Errorf("%+v", f)
		}
	}
	p, silent := s.start(t), s.start(t)
	s.Print(p.Name, "stderr.txt", "one\ntwo\n")
	s.Finish(p.Name, 0)
	s.Finish(silent.Name, 0)
	s.RemoveNodes()
	if got, err := s.log(t, p); got != "one\ntwo\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s.log(t, silent); !errors.Is(err, pilot.ErrNoLog) {
		t.Errorf("%v, want ErrNoLog", err)
	}
	account["blob"] = p.Name + "/stderr.txt"
	var blob struct{ Content string }
	tools.Run(t, "testdata/container.js", account, &blob)
	if blob.Content != "one\ntwo\n" {
		t.Errorf("Microsoft's client reads %q", blob.Content)
	}
	delete(account, "blob")
	for name, test := range map[string]struct{ address, want string }{
		"no permission to read": {sas("cw", 60), "AuthorizationPermissionMismatch"},
		"expired":               {sas("rcw", -1), "make a new one if that is past"},
		"no such container":     {strings.Replace(s.Shape.LogContainer, "/logs?", "/none?", 1), "make a new one if that is past"},
	} {
		s.Shape.LogContainer = test.address
		_, err := s.log(t, p)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "sig=") {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}
