package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// A login node that cannot run containers is no failure: nodes may differ.
func TestThisHostIsTriedByTheWorkerOfJobs(t *testing.T) {
	t.Parallel()
	for want, script := range map[string]string{
		"": `echo '{"node":"n1","choice":{"way":"builtin"}}'`,
		"warning host: n1, a login node, could not run containers: this node does not let ordinary users make user namespaces; nodes may differ: cl-bridge doctor tries one of each queue": `echo '{"node":"n1","error":"this node does not let ordinary users make user namespaces."}'; exit 1`,
		"warning host: n1, a login node, could not be tried: no /tmp; nodes may differ: ":                                                                                                  `echo '{"node":"n1","scratch":"no /tmp"}'; exit 1`,
		"cl-worker: exit status 2: broken; try by hand: ":                                                                                                                                  "echo broken >&2; exit 2",
		"prints a report that this cl-bridge cannot read; name the cl-worker ":                                                                                                             "echo hello",
	} {
		program := t.TempDir() + "/cl-worker"
		testenv.WriteProgram(t, program, []byte("#!/bin/sh\n"+script+"\n"))
		if got := said(doctor.Host(t.Context(), program, time.Minute)); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	slow := t.TempDir() + "/cl-worker"
	testenv.WriteProgram(t, slow, []byte("#!/bin/sh\nsleep 600\n"))
	want := "warning host: the cl-worker of jobs, " + slow + ", did not report within 1s, and was stopped; this host may be slow: try by hand: " + slow + " probe"
	if got := said(doctor.Host(t.Context(), slow, time.Second)); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := said(doctor.Host(t.Context(), "/absent", time.Minute)); !strings.HasPrefix(got, "warning host: the cl-worker of jobs cannot be run here: /absent: fork/exec /absent: no such file or directory; if nodes cannot run it either, ") {
		t.Error(got)
	}
}
