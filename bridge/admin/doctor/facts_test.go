package doctor_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/clocks"
	"github.com/cl-slurm/cl-slurm/internal/disktrial"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// off is the offset of a clock that differs by this time.
func off(by time.Duration) clocks.Offset {
	return clocks.Offset{Least: by - 100*time.Millisecond, Most: by + 100*time.Millisecond}
}

func TestSkewedClocksAreNamedWithWhatBreaks(t *testing.T) {
	t.Parallel()
	for want, check := range map[string]doctor.Check{
		"warning node.n1.clock: the clock of n1 is at least 29.9 s ahead of this host's; ":   doctor.NodeClock("n1", off(30*time.Second)),
		"failed node.n1.clock: the clock of n1 is at least 6m0s behind this host's; ":        doctor.NodeClock("n1", off(-6*time.Minute)),
		"warning slurm.clock: slurmctld's clock is at least 9.9 s behind this host's; ":      doctor.ControllerClock(off(-10 * time.Second)),
		"failed slurm.clock: slurmctld's clock is at least 69.9 s ahead of this host's; ":    doctor.ControllerClock(off(70 * time.Second)),
		"warning server.clock: the server's clock is at least 19.9 s ahead of this host's":   doctor.ServerClock(off(20 * time.Second)),
		"failed server.clock: the server's clock is at least 3m0s behind this host's":        doctor.ServerClock(off(-3 * time.Minute)),
		"warning shared.clock: the clock of the disk of shared is at least 29.9 s behind th": doctor.DiskClock(off(-30 * time.Second)),
		"": doctor.ServerClock(off(time.Second)),
	} {
		if got := said(check); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s\nwant\n%s", got, want)
		}
		if want != "" && (check.Means == "" || check.Do == "") {
			t.Errorf("no meaning or no remedy: %+v", check)
		}
	}
	// NFS may show a file a minute late, which proves nothing about a clock. The times of files do.
	late := clocks.Offset{Least: -time.Minute, Most: time.Minute}
	if c := doctor.NodeClock("n1", late); c.Verdict != doctor.OK {
		t.Errorf("%+v", c)
	}
	here, there := off(2*time.Second), off(-28*time.Second)
	at := doctor.Place{Shared: "/shared", Settle: 10 * time.Second, Architecture: "amd64", DiskClock: &here}
	out := outcome(func(o *doctor.Outcome) {
		o.Report.Facts, o.RoundTrip.Clock, o.RoundTrip.Known = &probe.Facts{DiskClock: &there}, late, true
	})
	const want = "warning node.n1.clock: the clock of n1 is at least 29.8 s ahead of this host's; "
	if got := said(doctor.Node(plan.Queue{Name: "q"}, at, out)...); !strings.HasPrefix(got, want) {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestFactsOfANodeAreRowsOfTheNode(t *testing.T) {
	t.Parallel()
	at := doctor.Place{Shared: "/shared", Settle: 10 * time.Second, Architecture: "amd64", IDs: "100000-165534"}
	q := plan.Queue{Name: "q", Scratch: "/scratch", MaxTime: 24 * time.Hour}
	for want, change := range map[string]func(o *doctor.Outcome){
		"warning node.n1.ids: this account has the ids 200000-265534 there, and 100000-165534 on this host; ": func(o *doctor.Outcome) {
			o.Report.Host.IDs.Version = "200000-265534"
		},
		"failed node.n1.user-namespaces: refused; ": func(o *doctor.Outcome) {
			o.Report.Host.Namespaces.Lack, o.Report.Facts.UserNamespaces.Max = "refused", "0"
			o.Report.Choice, o.Report.Error = nil, "refused"
		},
		"failed node.n1.rename: the node lost a file that the login node replaced by rename: no such file; ": func(o *doctor.Outcome) {
			o.Report.Lost = "the node lost a file that the login node replaced by rename: no such file"
		},
		"warning node.n1.clock: the clock of n1 is at least 29.9 s ahead of this host's; ": func(o *doctor.Outcome) {
			o.RoundTrip.Clock, o.RoundTrip.Known = off(30*time.Second), true
		},
		"": func(*doctor.Outcome) {},
	} {
		out := outcome(func(o *doctor.Outcome) {
			o.Report.Facts = &probe.Facts{ScratchDir: "/scratch"}
			o.Report.Host.IDs.Version = at.IDs
			change(o)
		})
		if got := said(doctor.Node(q, at, out)...); !strings.Contains("\n"+got, "\n"+want) || want == "" && got != "" {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	out := outcome(func(o *doctor.Outcome) { o.Report.Facts = &probe.Facts{}; o.Report.Host.IDs.Version = "1-65535" })
	at.IDs = ""
	if got := said(doctor.Node(q, at, out)...); !strings.HasPrefix(got, "warning node.n1.ids: this account has the ids 1-65535 there, and none on this host; ") {
		t.Error(got)
	}
}

func TestContentsThatLackFilesAreFoundInTheCache(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]doctor.Vanish{
		"": {Dir: "/c", Contents: 3},
		"failed cache: of 3 contents of /c, 2 lack files, such as /c/x: something else than the bridge removes files there; ": {Dir: "/c", Contents: 3, Gone: 2, One: "/c/x"},
		"warning cache: its contents could not be looked at: no answer; cl-bridge cache verify":                               {Err: errors.New("no answer")},
	} {
		if got := said(doctor.Vanished(v)); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	for want, p := range map[string]disktrial.Pair{
		"files of /c get to /r by reflinks":                        {},
		"files of /c can be linked to /r; there are no reflinks (": {Clone: "operation not supported"},
		"files of /c have to be copied to /r (":                    {Clone: "x", HardLinks: "invalid cross-device link"},
	} {
		if got := doctor.Paired("/c", "/r", p); got.Verdict != doctor.OK || !strings.HasPrefix(got.Found, want) {
			t.Errorf("%+v, want %s", got, want)
		}
	}
}

func TestJobIsSentToTheNamedNode(t *testing.T) {
	t.Parallel()
	slurm := &recording{}
	jobs := doctor.Jobs{Slurm: slurm, Shared: t.TempDir(), Node: "n1", Now: time.Now}
	extra := []string{"--exclusive"}
	out := jobs.Run(t.Context(), plan.Queue{Name: "cpu", Partition: "cpu", Scratch: "/tmp", Extra: extra}, 0, sbatch.Program{Path: "/bin/true"})
	if got := strings.Join(slurm.asked.Extra, " "); got != "--exclusive --nodelist=n1" || len(extra) != 1 || !errors.Is(out.Err, errRecorded) {
		t.Errorf("options %q, and the queue's %q: %v", got, extra, out.Err)
	}
	if left, err := os.ReadDir(jobs.Shared); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// A node belongs to some queues. Only a node that no queue has is a mistake.
func TestQueueThatHasNotTheNamedNodeIsNoFault(t *testing.T) {
	t.Parallel()
	at := doctor.Place{Node: "n3", Shared: "/shared", Settle: 10 * time.Second, Architecture: "amd64"}
	refused := doctor.Node(plan.Queue{Name: "cpu"}, at, doctor.Outcome{Err: &sbatch.Error{Message: "Requested node configuration is not available", Refused: true}})
	ran := doctor.Node(plan.Queue{Name: "gpu", Scratch: "/scratch"}, at, outcome(func(*doctor.Outcome) {}))
	queues := []string{"cpu", "gpu"}
	const none = "failed queue.cpu.job: Slurm refuses a job: Requested node configuration is not available; is n3 a node of the queue's partition? sinfo -N shows it"
	if got := said(doctor.Elsewhere("n3", queues[:1], [][]doctor.Check{refused})[0]...); got != none {
		t.Errorf("%s\nwant\n%s", got, none)
	}
	checks := doctor.Elsewhere("n3", queues, [][]doctor.Check{refused, ran})
	const want = "it was not tried: its jobs do not run on n3 (Requested node configuration is not available)"
	if c := checks[0][0]; c.Verdict != doctor.OK || c.Name != "queue.cpu.job" || c.Found != want || len(checks[1]) != len(ran) {
		t.Errorf("%+v", checks)
	}
}

var errRecorded = errors.New("it was only recorded")

// recording notes the last submission.
type recording struct {
	doctor.Slurm

	asked sbatch.Request
}

func (r *recording) Submit(_ context.Context, request sbatch.Request) (sbatch.JobID, error) {
	r.asked = request
	return 0, errRecorded
}
