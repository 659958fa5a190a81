package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/linkonce"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

const day = 24 * time.Hour

// site is the cluster of scripts/slurm-cluster, and a partition that is down.
var site = doctor.Site{
	User: "ann",
	Partitions: []sbatch.Partition{
		{Name: "cpu", Default: true, State: "up", MaxTime: 7 * day, DefaultTime: time.Hour, Nodes: 2, Ready: 2, Most: sbatch.NodeResources{CPUs: 64, Memory: 250 << 30}},
		{Name: "gpu", State: "up", MaxTime: 2 * day, Nodes: 2, Ready: 2, Most: sbatch.NodeResources{CPUs: 64, Memory: 250 << 30, GPUs: 4, GPUTypes: map[string]int64{"a100": 4}}},
		{Name: "mixed", State: "up", Nodes: 2, Ready: 2, Most: sbatch.NodeResources{GPUs: 4, GPUTypes: map[string]int64{"a100": 4, "v100": 2}}},
		{Name: "old", State: "down", Nodes: 1, Ready: 1},
		{Name: "dark", State: "up", Nodes: 3},
		{Name: "empty", State: "up"},
	},
	Associations: []sbatch.Association{{Account: "lab", Default: true, QOS: []string{"normal"}}, {Account: "nlp", QOS: []string{"normal", "long"}}},
}

// said prints the checks that are not OK as doctor does, a line each.
func said(checks ...doctor.Check) string {
	var lines []string
	for _, c := range checks {
		if c.Verdict != doctor.OK {
			lines = append(lines, fmt.Sprintf("%s %s: %s; %s", c.Verdict, c.Name, c.Found, c.Do))
		}
	}
	return strings.Join(lines, "\n")
}

func TestMistakesInAQueueAreNamedWithTheKeyAndWhatToDo(t *testing.T) {
	t.Parallel()
	for want, q := range map[string]plan.Queue{
		"": {Partition: "gpu", GPUType: "a100", DefaultTime: time.Hour, MaxTime: 2 * day},
		`failed queue.q.partition: Slurm has no partition "gpuu"; did you mean "gpu"? There are cpu, dark, empty, gpu, mixed, old`:                          {Partition: "gpuu"},
		`failed queue.q.partition: Slurm has no partition "nonsense"; there are cpu, dark, empty, gpu, mixed, old`:                                          {Partition: "nonsense"},
		`failed queue.q.partition: Slurm has no partition "gpux"; did you mean "gpu"? There are cpu, dark, empty, gpu, mixed, old`:                          {Partition: "cpu,gpux"},
		"failed queue.q.partition: old is down: no job begins there; name another partition, or ask the cluster's administrator":                            {Partition: "old"},
		"failed queue.q.partition: empty has no nodes; name another partition: there are cpu, gpu, mixed, old, dark, empty":                                 {Partition: "empty"},
		"warning queue.q.partition: no node of dark is up: 3 nodes; jobs wait until one is; ask the cluster's administrator":                                {Partition: "dark"},
		`failed queue.q.max_time: 3d is above the 2d that gpu allows: a job that asks for it would never start; write max_time = "2d"`:                      {Partition: "gpu", MaxTime: 3 * day, DefaultTime: time.Hour},
		`warning queue.q.max_time: it is not set, and cpu allows 7d: a bundle that asks for more gets a job that never starts; write max_time = "7d"`:       {},
		`failed queue.q.gres_type: no node of gpu has GPUs of type "a10"; did you mean "a100"? There are a100`:                                              {Partition: "gpu", MaxTime: day, GPUType: "a10"},
		"failed queue.q.gres_type: cpu has no GPUs; leave gres_type out, or name another partition":                                                         {Partition: "cpu", MaxTime: day, GPUType: "a100"},
		"warning queue.q.gres_type: mixed has GPUs of several types, and a job gets any: a100, v100; write gres_type where it matters, in a queue for each": {Partition: "mixed"},
		"failed queue.q.default_time: 2d with the time_grace of 2m is above the 2d that gpu allows: no such job would ever start; write max_time = \"2d\", and a default_time that is not above it\n" +
			`warning queue.q.max_time: it is not set, and gpu allows 2d: a bundle that asks for more gets a job that never starts; write max_time = "2d"`: {Partition: "gpu", DefaultTime: 2 * day, TimeGrace: 2 * time.Minute},
	} {
		q.Name = "q"
		if got := said(doctor.Queue(q, site)...); got != want {
			t.Errorf("%+v:\n%s\nwant\n%s", q, got, want)
		}
	}
	none := doctor.Site{Partitions: site.Partitions[1:]}
	if got := said(doctor.Queue(plan.Queue{Name: "q"}, none)...); !strings.Contains(got, "Slurm has no default one") {
		t.Error(got)
	}
}

// A job may go to any of its queue's partitions, so what one of them allows is
// allowed.
func TestQueueOfSeveralPartitionsHasWhatAnyOfThemAllows(t *testing.T) {
	t.Parallel()
	s := doctor.Site{Partitions: []sbatch.Partition{
		{Name: "bounded", State: "up", MaxTime: day, Nodes: 1, Ready: 1, Most: sbatch.NodeResources{GPUs: 4, GPUTypes: map[string]int64{"a100": 4}}},
		{Name: "boundless", State: "up", Nodes: 1, Ready: 1, Most: sbatch.NodeResources{GPUs: 2, GPUTypes: map[string]int64{"v100": 2}}},
	}}
	for _, partitions := range []string{"bounded,boundless", "boundless,bounded"} {
		for _, kind := range []string{"a100", "v100"} {
			q := plan.Queue{Name: "q", Partition: partitions, GPUType: kind, DefaultTime: 2 * day, MaxTime: 3 * day}
			if got := said(doctor.Queue(q, s)...); got != "" {
				t.Errorf("%s with %s: %s", partitions, kind, got)
			}
		}
	}
}

func TestSizesOfNodesAreTold(t *testing.T) {
	t.Parallel()
	wide, large := sbatch.NodeResources{CPUs: 64, Memory: 100 << 30}, sbatch.NodeResources{CPUs: 8, Memory: 1 << 40}
	for want, p := range map[string]sbatch.Partition{
		"p is up: 2 nodes, of which one has at most 64 CPUs, 100g of memory; or 8 CPUs, 1t of memory": {Nodes: 2, Ready: 2, Most: wide.Max(large), Sizes: sbatch.NodeSizes{wide, large}},
		"p is up: 3 nodes (1 of them up), of which one has at most 64 CPUs, 100g of memory":           {Nodes: 3, Ready: 1, Most: wide, Sizes: sbatch.NodeSizes{wide}},
		"no node of p is up: 3 nodes": {Nodes: 3},
		"p has no nodes":              {},
	} {
		p.Name, p.State = "p", "up"
		if got := doctor.Queue(plan.Queue{Name: "q", Partition: "p"}, doctor.Site{Partitions: []sbatch.Partition{p}})[0].Found; got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

func TestRefusedJobNamesTheKeyThatIsWrong(t *testing.T) {
	t.Parallel()
	q := plan.Queue{Name: "q", Account: "labb", QOS: "fast"}
	refused := func(stderr string) error { return slurmtest.SubmitError("x", "sbatch: "+stderr, 255) }
	answer := func(answer string) error {
		return slurmtest.SubmitError("x", "sbatch: error: Batch job submission failed: "+answer, 1)
	}
	for want, err := range map[string]error{
		"": nil,
		"failed queue.q.account: Slurm refuses a job: Invalid account or account/partition combination specified; ann has lab, nlp":                                                       answer("Invalid account or account/partition combination specified"),
		"failed queue.q.qos: Slurm refuses a job: Invalid qos specification; the accounting database has no QOS of ann: ask the cluster's administrator for one":                          answer("Invalid qos specification"),
		"failed queue.q.reservation: Slurm refuses a job: Requested reservation is invalid; correct it, or leave it out":                                                                  answer("Requested reservation is invalid"),
		"failed queue.q.constraint: Slurm refuses a job: Invalid feature specification; correct it, or leave it out":                                                                      answer("Invalid feature specification"),
		"failed queue.q.partition: Slurm refuses a job: User's group not permitted to use this partition; name a partition that ann may use: there are cpu, gpu, mixed, old, dark, empty": answer("User's group not permitted to use this partition"),
		"failed queue.q.sbatch_options: Slurm refuses a job: unrecognized option '--colour'; correct them, or leave them out":                                                             refused("unrecognized option '--colour'"),
		"warning queue.q: Slurm takes no job now: Job violates accounting/QOS policy; jobs are submitted again until it does":                                                             answer("Job violates accounting/QOS policy"),
		"failed queue.q: Slurm does not say whether it takes a job: submit x: Unable to contact slurm controller (connect failure); try again later":                                      answer("Unable to contact slurm controller (connect failure)"),
	} {
		if got := said(doctor.Tried(q, site, err)); got != want {
			t.Errorf("%v:\n%s\nwant\n%s", err, got, want)
		}
	}
}

// The queue's smallest job says nothing of a pack, which asks for more of all.
func TestPackThatSlurmRefusesIsTold(t *testing.T) {
	t.Parallel()
	q := plan.Queue{Name: "q", PackRuns: 100, PackSideBySide: 8, PackTime: time.Hour}
	answer := func(answer string) error {
		return slurmtest.SubmitError("x", "sbatch: error: Batch job submission failed: "+answer, 1)
	}
	const advice = "write a pack_time and a pack_side_by_side that Slurm takes: until then each pack is halved, down to single jobs"
	for want, err := range map[string]error{
		"": nil,
		"failed queue.q.pack_time: Slurm refuses a pack: Requested time limit is invalid (missing or exceeds some limit); " + advice: answer("Requested time limit is invalid (missing or exceeds some limit)"),
		"warning queue.q: Slurm takes no job now: Job violates accounting/QOS policy; jobs are submitted again until it does":        answer("Job violates accounting/QOS policy"),
	} {
		if got := said(doctor.TriedPack(q, err)); got != want {
			t.Errorf("%v:\n%s\nwant\n%s", err, got, want)
		}
	}
}

func TestMistakeInTheTableOfOwnersIsNamedWithItsTable(t *testing.T) {
	t.Parallel()
	q := func(c plan.Billing) plan.Queue { return plan.Queue{Name: "q", Account: "lab"}.Billed(c) }
	known := doctor.Site{User: "ann", Associations: []sbatch.Association{
		{Account: "lab", Default: true, QOS: []string{"normal"}}, {Account: "nlp", QOS: []string{"normal", "limited"}},
	}}
	answer := func(answer string) error {
		return slurmtest.SubmitError("x", "sbatch: error: Batch job submission failed: "+answer, 1)
	}
	for want, check := range map[string]doctor.Check{
		`failed map.2.account: ann may not charge account "nlpp"; ann has lab, nlp`:                                                                doctor.Known(1, q(plan.Billing{Account: "nlpp"}), known),
		`failed map.1.qos: ann has no QOS "limited" there; ann has normal`:                                                                         doctor.Known(0, q(plan.Billing{QOS: "limited"}), known),
		"failed map.1.wckey: Slurm refuses a job: Invalid wckey specification; correct it, or leave it out":                                        doctor.TriedMapping(0, q(plan.Billing{WCKey: "proj9"}), known, answer("Invalid wckey specification")),
		"failed map.3.reservation: Slurm refuses a job: Requested reservation is invalid; correct it, or leave it out":                             doctor.TriedMapping(2, q(plan.Billing{Reservation: "old"}), known, answer("Requested reservation is invalid")),
		"failed map.1: Slurm does not say whether it takes a job: submit x: Unable to contact slurm controller (connect failure); try again later": doctor.TriedMapping(0, q(plan.Billing{Account: "nlp"}), known, answer("Unable to contact slurm controller (connect failure)")),
	} {
		if got := said(check); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	for _, c := range []plan.Billing{{Account: "nlp", QOS: "limited"}, {QOS: "normal"}} {
		if got := doctor.Known(0, q(c), known); got != (doctor.Check{}) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	if got := doctor.Known(0, q(plan.Billing{Account: "x"}), doctor.Site{User: "ann"}); got != (doctor.Check{}) {
		t.Errorf("without a database: %+v", got)
	}
	if got := doctor.TriedMapping(0, q(plan.Billing{Account: "nlp", QOS: "limited"}), known, nil); got.Found != "Slurm takes jobs of ann in queue q: account nlp, QOS limited" || got.Name != "map.1.account" {
		t.Errorf("%+v", got)
	}
}

func TestServerAndLoginAreToldApart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err           error
		server, login string
		away          bool
	}{
		{nil, "", "", false},
		{fmt.Errorf("x: %w", client.ErrCredentials), "", `failed login: the server refuses user "ann": wrong user name or password; write the password of user into password_file, or mend user`, false},
		{&codalab.Error{Message: "cannot reach the server at http://h: connection refused"}, "failed server: cannot reach the server at http://h: connection refused; is server the right address, and can this host reach it? curl http://h/rest/user", "failed login: not tried: there is no server to log in to; ", true},
		{&codalab.Error{Method: "POST", Path: "/oauth2/token", Status: 502, Message: "Bad Gateway"}, "failed server: http://h is in trouble: POST /oauth2/token: 502 Bad Gateway; ask its administrator, or try again later", "failed login: not tried: there is no server to log in to; ", true},
		{&codalab.Error{Method: "POST", Path: "/oauth2/token", Status: 404, Message: "Not Found"}, "failed server: http://h does not answer as a CodaLab server does: POST /oauth2/token: 404 Not Found; is server the address of one, without /rest and without /worksheets?", "failed login: not tried: there is no server to log in to; ", false},
		{&codalab.Error{Status: 401, Err: client.ErrToken}, "", "failed login: the server refuses the token: it has ended or was revoked, or this is CodaLab's own server, which has no such tokens; write a new one into token_file, which cl token add or the server's administrator makes (cl-server token add)", false},
		{&codalab.Error{Status: 403, Message: "not verified"}, "", `failed login: the server refuses user "ann": not verified; ask the server's administrator to admit this user`, false},
	} {
		checks := []doctor.Check{doctor.Server("http://h", "1.7.3", test.err), doctor.Login("ann", test.err)}
		if got := said(checks[0]); got != test.server {
			t.Errorf("%v: %s", test.err, got)
		}
		if got := said(checks[1]); got != test.login {
			t.Errorf("%v: %s", test.err, got)
		}
		if _, away := doctor.HasFailed(checks); away != test.away {
			t.Errorf("%v: away = %v", test.err, away)
		}
	}
}

func TestTokenIsJudgedByItsWorkersItsUserAndItsEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	token := func(user string, days int) codalab.ProgramToken {
		return codalab.ProgramToken{ID: "abc", User: user, Expires: now.Add(time.Duration(days) * 24 * time.Hour).Unix()}
	}
	for want, check := range map[string]doctor.Check{
		"": doctor.Tokened(token("ann", 30), "ann", "lab", now, nil),
		"warning token_file: the token abc ends on 2026-12-08, and the bridge waits then; write a new one into the file before: the bridge takes it when the old one ends": doctor.Tokened(token("ann", 10), "ann", "lab", now, nil),
		`failed token_file: the token is one of bob, and user is ann; write user = "bob", or get a token of ann`:                                                           doctor.Tokened(token("bob", 30), "ann", "lab", now, nil),
		"failed token_file: the token is not for this bridge: not for worker lab-cpu; get one for the workers lab-*, or name the bridge as the token does (key name)":      doctor.Tokened(codalab.ProgramToken{}, "ann", "lab", now, &codalab.Error{Status: 403, Message: "not for worker lab-cpu"}),
		"failed token_file: read token_file: no such file; write a token of the server into it, readable by you alone: (umask 077; cat > /t)":                              doctor.Token("/t", errors.New("read token_file: no such file")),
	} {
		if got := said(check); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	if got := doctor.Tokened(codalab.ProgramToken{ID: "abc", User: "ann"}, "ann", "lab", now, nil); got.Found != "the token abc is for this bridge, and has no end" {
		t.Errorf("%+v", got)
	}
}

func TestCommandsAndDisksOfThisHostAreJudged(t *testing.T) {
	t.Parallel()
	absent := &command.Error{ExitCode: -1, Err: exec.ErrNotFound}
	for want, check := range map[string]doctor.Check{
		`failed slurm.bin: there is no sbatch in /opt; name the directory of Slurm's commands as slurm.bin, or leave it out where they are in PATH`:                           doctor.Commands("/opt", "", absent),
		`failed slurm.bin: there is no sbatch in PATH; name the directory of Slurm's commands as slurm.bin, such as "/opt/slurm/bin", or add it to PATH`:                      doctor.Commands("", "", absent),
		"failed password_file: read password_file: no such file; write the password of user into it, readable by you alone: (umask 077; cat > /p)":                            doctor.Password("/p", errors.New("read password_file: no such file")),
		"failed slurm.accounting: no database; write slurm.accounting = false where this site has no accounting database":                                                     doctor.Accounting(true, errors.New("no database")),
		"failed low_water: the site's disk has 10g free, below its low water of 50g: no bundle would be claimed; make room, or write a lower low_water":                       doctor.Shared("/s", nil, spool.Space{Free: 10 << 30, Total: 100 << 30}, plan.LowWater{Bytes: 50 << 30})[1],
		"failed shared: it has no hard links: no attempt of a bundle can be begun there; name a directory on a disk with atomic link and rename, such as NFS, Lustre or GPFS": doctor.Shared("/s", fmt.Errorf("it has no hard links: %w", linkonce.ErrUnfit), spool.Space{}, plan.LowWater{})[0],
		"failed shared: look at it: no such file; name a directory that login and compute nodes share, and that is yours: mkdir -p -m 700 /s":                                 doctor.Shared("/s", errors.New("look at it: no such file"), spool.Space{}, plan.LowWater{})[0],
	} {
		if got := said(check); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

func TestKeysThatOverrideSlurmsSettingsAreJudged(t *testing.T) {
	t.Parallel()
	site := sbatch.Settings{Cluster: "site", Accounting: true, MinJobAge: 5 * time.Minute, KillWait: 30 * time.Second}
	override := config.Slurm{}
	if err := override.MinJobAge.UnmarshalText([]byte("1h")); err != nil {
		t.Fatal(err)
	}
	for want, check := range map[string]doctor.Check{
		"failed slurm.min_job_age: 1h is above the site's MinJobAge, 5m; leave it out: the bridge asks Slurm for it":                doctor.Settings(override, site, nil),
		"warning slurm.settings: no answer; the bridge uses safe values: name the site's as slurm.accounting and slurm.min_job_age": doctor.Settings(config.Slurm{}, sbatch.Settings{}, errors.New("no answer")),
		"": doctor.Settings(config.Slurm{}, site, nil),
	} {
		if got := said(check); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

func TestLedgerIsJudgedByItsPlace(t *testing.T) {
	t.Parallel()
	absent := fmt.Errorf("open ledger: %w", ledger.ErrAbsent)
	away := fmt.Errorf("open ledger: %w", sqldb.ErrUnavailable)
	const file, database = "/l/ledger.db", "postgres://h/bridge"
	for _, test := range []struct {
		found doctor.LedgerFound
		want  string
	}{
		{doctor.LedgerFound{Where: file}, "ok ledger: /l/ledger.db can be read; "},
		{doctor.LedgerFound{Where: file, Running: true}, "ok ledger: /l/ledger.db: a bridge works on it; "},
		{doctor.LedgerFound{Where: file, Err: absent}, "ok ledger: /l/ledger.db is made when the bridge starts; "},
		{doctor.LedgerFound{Where: database, Err: absent}, "ok ledger: postgres://h/bridge answers; the bridge makes its tables there; "},
		{
			doctor.LedgerFound{Where: file, InMemory: true},
			"warning ledger: /l/ledger.db can be read, in memory: it is gone when this host restarts; name a file on a disk of this host as ledger, or a database",
		},
		{
			doctor.LedgerFound{Where: file, Err: absent, Unwritable: errors.New("write to it: permission denied")},
			"failed ledger: /l/ledger.db cannot be made: write to it: permission denied; name another file as ledger, on a disk of this host",
		},
		{doctor.LedgerFound{Where: database, Err: away}, "failed ledger: " + away.Error() + "; docs/operators/reference.md, The ledger"},
	} {
		c := doctor.Ledger(test.found)
		if got := fmt.Sprintf("%s %s: %s; %s", c.Verdict, c.Name, c.Found, c.Do); got != test.want {
			t.Errorf("%+v:\n%s\nwant\n%s", test.found, got, test.want)
		}
		if c.Unreachable != errors.Is(test.found.Err, sqldb.ErrUnavailable) {
			t.Errorf("%+v: away = %v", test.found, c.Unreachable)
		}
	}
}

// outcome returns the changed outcome of a job on a node that has everything.
func outcome(change func(o *doctor.Outcome)) doctor.Outcome {
	o := doctor.Outcome{
		Job:   sbatch.Job{ID: 7, State: sbatch.StateCompleted, Nodes: "n1", Reason: "None"},
		Heard: time.Second, RoundTrip: probe.Trip{Took: 50 * time.Millisecond}, Machine: "x86_64",
		Report: &probe.Heard{Report: probe.Report{
			Node: "n1", Kernel: "6.1", Machine: "x86_64", Choice: &container.Choice{Runtime: runtimes.Builtin, Reason: "it has all."},
			Cgroup: "/sys/fs/cgroup/memory/x", MemoryLimit: 512 << 20, Owner: true,
		}},
	}
	change(&o)
	return o
}

func TestNodesAreJudgedByWhatTheirJobsLeave(t *testing.T) {
	t.Parallel()
	at := doctor.Place{Shared: "/shared", Settle: 10 * time.Second, Architecture: "amd64"}
	q := plan.Queue{Name: "q", Scratch: "/scratch", MaxProcesses: 4096}
	const noProcesses = "; limit the account's processes on the node by other means (docs/security.md, Processes)"
	for want, change := range map[string]func(o *doctor.Outcome){
		"warning queue.q.max_processes: a bundle on n1 can have as many processes as its account may: this node has Linux 5.4" + noProcesses: func(o *doctor.Outcome) {
			o.Report.Host.Processes.Lack = "this node has Linux 5.4."
		},
		"warning queue.q.max_processes: a bundle on n1 can have as many processes as its account may: podman cannot limit the processes of its containers" + noProcesses: func(o *doctor.Outcome) {
			o.Report.Choice.Runtime, o.Report.Host.Podman.Engine = runtimes.Podman, &container.Engine{Memory: true}
		},
		"warning queue.q.memory: docker cannot limit the memory of its containers on n1; the worker keeps limits by looking once a second": func(o *doctor.Outcome) {
			o.Report.Choice.Runtime, o.Report.Host.Docker.Engine = runtimes.Docker, &container.Engine{Processes: true}
		},
		"": func(*doctor.Outcome) {},
		"failed shared: job 7 on n1 does not see this host's files in /shared; name a directory that is on a disk of this host and of the nodes, at the same path": func(o *doctor.Outcome) {
			o.Report, o.Machine, o.Job.State, o.Job.Reason = nil, "", sbatch.StateFailed, "NonZeroExitCode"
		},
		"failed queue.q.job: job 7 on n1 is FAILED (JobLaunchFailure), and no file of it appeared in /shared; slurmd's log on the node and scontrol show job 7 say why; try by hand: sbatch --wrap 'ls -ld /shared'": func(o *doctor.Outcome) {
			o.Report, o.Machine, o.Job.State, o.Job.Reason = nil, "", sbatch.StateFailed, "JobLaunchFailure"
		},
		"failed queue.q.job: job 7 on n1 is CANCELLED (None), and no file of it appeared in /shared; slurmd's log on the node and scontrol show job 7 say why; try by hand: sbatch --wrap 'ls -ld /shared'": func(o *doctor.Outcome) {
			o.Report, o.Machine, o.Job.State = nil, "", sbatch.StateCancelled
		},
		"failed queue.q.job: job 7 on n1 is COMPLETED, and no file of it appeared in /shared within 11s; what it wrote is on another disk, or shows later than disk_settle: try by hand: sbatch --wrap 'ls -ld /shared'": func(o *doctor.Outcome) {
			o.Report, o.Machine, o.Waited = nil, "", 11*time.Second
		},
		"warning queue.q.job: job 7 on n1 reached its time limit before a file of it appeared in /shared; the node may start jobs slowly: try by hand: sbatch --wrap 'ls -ld /shared'": func(o *doctor.Outcome) {
			o.Report, o.Machine, o.Job.State = nil, "", sbatch.StateTimeout
		},
		"warning queue.q.job: job 7 on n1 was RUNNING for 71s, and no file of it appeared in /shared; it was cancelled; try again with a longer --wait, such as --wait 5m": func(o *doctor.Outcome) {
			o.Report, o.Machine, o.Job.State, o.Waited = nil, "", sbatch.StateRunning, 71*time.Second
		},
		"warning queue.q.job: job 7 on n1 was RUNNING for 71s, and its cl-worker had started and not reported; it was cancelled; try again with a longer --wait, such as --wait 5m": func(o *doctor.Outcome) {
			o.Report, o.Job.State, o.Waited = nil, sbatch.StateRunning, 71*time.Second
		},
		"warning queue.q.job: job 7 on n1 reached its time limit before its cl-worker had reported; try again with a longer --wait, such as --wait 5m": func(o *doctor.Outcome) {
			o.Report, o.Job.State = nil, sbatch.StateTimeout
		},
		"failed queue.q.job: job 7 on n1 is OUT_OF_MEMORY (OutOfMemory), and its cl-worker left neither a report nor a message; slurmd's log on the node and scontrol show job 7 say why": func(o *doctor.Outcome) {
			o.Report, o.Job.State, o.Job.Reason = nil, sbatch.StateOutOfMemory, "OutOfMemory"
		},
		"warning queue.q.job: job 7 had not begun 61s after sbatch: Priority; it was cancelled, and its nodes are not known; try again when the queue is less busy, or with a longer --wait": func(o *doctor.Outcome) {
			o.Report, o.NotBegun, o.Waited, o.Job = nil, true, 61*time.Second, sbatch.Job{ID: 7, State: sbatch.StatePending, Reason: "Priority"}
		},
		"failed queue.q.job: no file of job 7 appeared for 61s, and Slurm does not show its state: observe: not ended after 30s, and stopped; doctor asked Slurm to cancel it; try again later": func(o *doctor.Outcome) {
			o.Report, o.NotBegun, o.Waited, o.Job = nil, true, 61*time.Second, sbatch.Job{ID: 7, State: sbatch.StatePending}
			o.Unseen = errors.New("observe: not ended after 30s, and stopped")
		},
		"warning queue.q.job: job 7 on n1 had not begun 61s after sbatch: CONFIGURING, its nodes were still being made ready; it was cancelled; try again with a longer --wait, such as --wait 5m": func(o *doctor.Outcome) {
			o.Report, o.NotBegun, o.Waited, o.Job.State = nil, true, 61*time.Second, sbatch.StateConfiguring
		},
		"failed disk_settle: a new file did not appear on n1, or its answer here, within 100s; mount the disk with shorter attribute caching (acregmax, acdirmax), and write a disk_settle above it": func(o *doctor.Outcome) {
			o.RoundTripErr = fmt.Errorf("wait: %w", context.DeadlineExceeded)
		},
		"failed shared: the disk could not be measured: write: no space; ": func(o *doctor.Outcome) {
			o.RoundTripErr = errors.New("write: no space")
		},
		`failed queue.q.architecture: job 7 on n1 is aarch64, and the queue's cl-worker is for amd64; write architecture = "arm64", and name a cl-worker for it in a table [workers]`: func(o *doctor.Outcome) {
			o.Report, o.Machine, o.Output = nil, "aarch64", "cl-worker: Exec format error"
		},
		"failed queue.q.job: make a directory: no space; ": func(o *doctor.Outcome) {
			*o = doctor.Outcome{Err: errors.New("make a directory: no space")}
		},
		"failed queue.q.account: Slurm refuses a job: Invalid account; try it by hand: sbatch --test-only": func(o *doctor.Outcome) {
			*o = doctor.Outcome{Err: &sbatch.Error{Message: "Invalid account", Refused: true}}
		},
		"failed queue.q.job: job 7 on n1: cl-worker fails: it broke; ": func(o *doctor.Outcome) { o.Report, o.Output = nil, "a\nit broke" },
		`failed disk_settle: a file took up to 31.0 s to be seen between this host and n1, and disk_settle is 10s; write disk_settle = "63s", or more`: func(o *doctor.Outcome) {
			o.RoundTrip.Took = 31 * time.Second
		},
		"failed shared: n1 sees /shared, whose disk is unfit: its links do not last; name a directory on a disk with atomic link and rename, such as NFS, Lustre or GPFS": func(o *doctor.Outcome) {
			o.Report.Disk = "its links do not last"
		},
		"failed queue.q.scratch: /scratch cannot be used on n1: no space; name a directory on the nodes' own disk that anyone may write to": func(o *doctor.Outcome) {
			o.Report.Scratch = "no space"
		},
		"warning queue.q.scratch: /scratch is mounted noexec on n1: commands cannot execute programs that they write to $TMPDIR, nor with workdir = \"local\" to their working directory; name a directory that is mounted without noexec": func(o *doctor.Outcome) {
			o.Report.Noexec = true
		},
		"failed queue.q.runtime: n1: this node can run no container; docs/operators/start.md, What the nodes need": func(o *doctor.Outcome) {
			o.Report.Choice, o.Report.Error = nil, "this node can run no container."
		},
		"warning queue.q.runtime: n1 runs containers by builtin: it has all; each run unpacks its image; to mount images, the node lacks: /dev/fuse (it is closed)": func(o *doctor.Outcome) {
			o.Report.Host.Fuse.Lack = "it is closed."
		},
		"warning queue.q.network: bundles that request a network, as most do, have none on n1: it lacks slirp4netns; docs/containers.md, Networks; or write network = \"host\", or \"never\"": func(o *doctor.Outcome) {
			o.Report.Host.Forwarder.Lack = "it lacks slirp4netns."
		},
		"warning queue.q.network: bundles that request a network, as most do, have none on n1: apptainer runs with privileges (setuid); docs/containers.md, Networks; or write network = \"host\", or \"never\"" +
			"\nwarning queue.q.max_processes: a bundle on n1 can have as many processes as its account may: apptainer runs with privileges (setuid)" + noProcesses: func(o *doctor.Outcome) {
			o.Report.Choice = &container.Choice{Runtime: runtimes.Apptainer, Plain: true}
			o.Report.Host.Forwarder.Path = "/usr/bin/slirp4netns"
		},
		"warning queue.q.memory: n1 has no memory cgroup for the job; the worker keeps limits by looking once a second; ConstrainRAMSpace=yes in cgroup.conf would have the kernel keep them": func(o *doctor.Outcome) {
			o.Report.Cgroup = ""
		},
	} {
		if got := said(doctor.Node(q, at, outcome(change))...); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

func TestWeakerWallsOfANodesRuntimeAreNamed(t *testing.T) {
	t.Parallel()
	checks := doctor.Node(plan.Queue{Name: "q", Scratch: "/scratch"}, doctor.Place{Shared: "/shared", Settle: 10 * time.Second, Architecture: "amd64"}, outcome(func(o *doctor.Outcome) {
		o.Report.Choice = &container.Choice{Runtime: runtimes.Docker, Reason: "docker was asked for"}
		o.Report.Weaker = []string{"is root of the node if it leaves the container"}
	}))
	const want = "n1 runs containers by docker: docker was asked for (user namespaces, /dev/fuse, overlay, squashfuse, bubblewrap); " +
		"docker is a weaker wall than the built-in runtime: a command is root of the node if it leaves the container"
	if !slices.ContainsFunc(checks, func(c doctor.Check) bool { return c.Verdict == doctor.OK && c.Found == want }) {
		t.Errorf("no check says %q: %+v", want, checks)
	}
}

// A command that was stopped says nothing about a configuration.
func TestTimeOutIsNoMistakeOfTheConfiguration(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	slow := command.Command{Args: []string{"sleep", "600"}}.Run(ctx)
	const stopped = "sleep: not ended after 0.1s, and stopped"
	for want, check := range map[string]doctor.Check{
		"failed slurm.bin: " + stopped + "; this host or the disk of Slurm's commands may be slow: try again, or by hand: sbatch --version": doctor.Commands("/opt", "", slow),
		"failed slurm: " + stopped + "; slurmctld may be busy: try again later, or by hand: sinfo":                                          doctor.Controller(0, slow),
		"failed slurm.accounting: " + stopped + "; the accounting database may be busy: try again later, or by hand: sacct":                 doctor.Accounting(true, slow),
		"failed server: http://h did not answer in time; it may be slow, or server the wrong address: curl http://h/rest/user":              doctor.Server("http://h", "", &codalab.Error{Err: context.DeadlineExceeded, Message: "cannot reach the server"}),
		"failed queue.q.submission: held job 7 was submitted, and Slurm does not show its state: " + stopped + "; try again later":          doctor.Rewritten(plan.Queue{Name: "q"}, doctor.Held{Job: 7, Err: slow})[0],
	} {
		got := said(check)
		if !strings.Contains(slow.Error(), "0.1s") {
			got = strings.ReplaceAll(got, slow.Error(), stopped) // the machine was slow
		}
		if got != want || !check.Unreachable {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

func TestGroupOfAQueueIsOneThatTheUserIsIn(t *testing.T) {
	t.Parallel()
	q := plan.Queue{Name: "q", Group: "nlp"}
	for _, test := range []struct {
		groups []string
		err    error
		want   string
	}{
		{[]string{"vision", "nlp"}, nil, ""},
		{[]string{"vision", "nlp2"}, nil, `failed queue.q.group: ann is in no group "nlp": the queue would take none of its members' bundles; did you mean "nlp2"? There are nlp2, vision`},
		{nil, nil, `failed queue.q.group: ann is in no group "nlp", nor in any other: the queue would take none of its members' bundles; have its administrator add the user: cl uadd ann nlp`},
		{nil, &codalab.Error{Status: 404}, "failed queue.q.group: the server knows no groups; leave group out"},
		{nil, &codalab.Error{Method: "GET", Path: "/groups", Message: "no answer"}, "failed queue.q.group: GET /groups: no answer; try again later"},
	} {
		if got := said(doctor.Group(q, "ann", test.groups, test.err)); got != test.want {
			t.Errorf("%v, %v: %s", test.groups, test.err, got)
		}
	}
}
