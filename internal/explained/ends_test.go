package explained_test

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// end is a way to end a bundle, or to do something to its job that does not end it.
type end struct {
	// queue is one of partitions; empty means cpu.
	queue string
	// command is the bundle's, and args are further arguments of cl run. A command of waitsForGo ends when goOn is called.
	command string
	args    []string
	// prepare is called before the bundle is made, and act after that.
	prepare func(t *testing.T, s *site)
	act     func(t *testing.T, b *bundle)
}

// waitsForGo is a command that ends well when it finds the file go.
const waitsForGo = "until test -e go; do sleep 1; done"

// endedFromOutside are the exit codes of a command that others have ended, by TERM, and by KILL if it is still there two
// seconds later, as on a busy machine. The worker does not always have the time to record them.
var endedFromOutside = []string{"143", "137"}

// partition is a partition with a queue of its name. Without settings the cluster has it already.
type partition struct {
	settings []string
	// queue has further lines of the queue's table.
	queue string
}

// hour is the time limit of most bundles.
const hour = "default_time = \"1h\"\n"

// partitions are the queues of the ends. What happens to a node happens to one partition alone.
func partitions() map[string]partition {
	own := func(node string, settings ...string) partition {
		return partition{append([]string{"Nodes=" + node}, settings...), hour}
	}
	all := map[string]partition{
		"cpu":         {queue: "default = true\n" + hour},
		"nolimit":     {[]string{"Nodes=n[1-2]", "DefaultTime=1", "MaxTime=60"}, ""},
		"deadline":    {[]string{"Nodes=n1", "MaxCPUsPerNode=1", "DefaultTime=1", "MaxTime=60"}, "sbatch_options = [\"--deadline=now+75\"]\n"},
		"closed":      own("n[1-2]", "State=DOWN"),
		"prologfails": own("n8"),
		"unknownuser": own("n9"),
		"nodisk":      own("n10"),
		"down":        own("n11"),
		"lost":        own("n12"),
		"silent":      own("n13"),
		"drained":     own("n14"),
		"held":        own("n15", "State=DOWN"),
		"turns":       own("n16", "OverSubscribe=FORCE:2"),
		"reserved":    {[]string{"Nodes=n[1-2]"}, hour + "reservation = \"cltestends\"\n"},
		"licensed":    {[]string{"Nodes=n[1-2]"}, hour + "sbatch_options = [\"--licenses=" + lent + ":1\"]\n"},
	}
	for mode, node := range map[string]string{"CANCEL": "n17", "REQUEUE": "n18", "SUSPEND": "n19"} {
		all["low"+strings.ToLower(mode)] = own(node, "PreemptMode="+mode)
		all["high"+strings.ToLower(mode)] = own(node, "PriorityTier=10")
	}
	return all
}

// Each end that the cluster can be made to give is in the golden file, with its sentence; and so is what looks like an
// end and is none.
func TestEachEndThatSlurmGivesHasItsSentence(t *testing.T) {
	t.Parallel()
	s := start(t)
	site := startSite(t, s, partitions())
	var mu sync.Mutex
	results := map[string]string{}
	all := map[string]end{}
	for _, some := range []map[string]end{ownEnds(), limitEnds(), cancelEnds(), preemptEnds(), nodeEnds(), launchEnds(), noEnds()} {
		maps.Copy(all, some)
	}
	if _, err := exec.LookPath("cc"); err != nil {
		delete(all, "BOOT_FAIL")
	}
	t.Run("ends", func(t *testing.T) {
		for name, e := range all {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				result := e.provoke(t, site, name)
				mu.Lock()
				defer mu.Unlock()
				results[name] = result
			})
		}
	})
	leaveOutRefusedLaunch(t, results)
	s.compare(t, "ends.golden", results, len(results) == len(all))
}

// leaveOutRefusedLaunch leaves out the end by a failed prolog where it looks like that on a node without the shared disk.
// slurmd sends that it did not start the job, and that the prolog failed. If the former comes first, as on a busy machine
// with Slurm 24.11, the job stays FAILED, and nothing else is known of it.
func leaveOutRefusedLaunch(t *testing.T, results map[string]string) {
	t.Helper()
	const prolog, disk = "the prolog fails", "the node does not see the shared disk"
	if results[prolog] != "" && results[prolog] == strings.Replace(results[disk], disk, prolog, 1) {
		t.Log("slurmd's messages about the prolog came in the other order")
		delete(results, prolog)
	}
}

// provoke makes a bundle end, and returns its part of the golden file.
func (e end) provoke(t *testing.T, s *site, name string) string {
	t.Helper()
	queue := e.queue
	if queue == "" {
		queue = "cpu"
	}
	if e.prepare != nil {
		e.prepare(t, s)
	}
	b := s.run(t, queue, e.command, e.args...)
	if e.act != nil {
		e.act(t, b)
	}
	b.ends(t)
	if e.command == waitsForGo {
		return b.result(t, name, endedFromOutside...)
	}
	return b.result(t, name)
}

// ends waits for the bundle's end, which Slurm's own time limit brings after a minute and a half.
func (b *bundle) ends(t *testing.T) {
	t.Helper()
	var state, status string
	testenv.Await(t, "the bundle has ended", func() bool {
		state, status = b.shown(t)
		return slices.Contains([]string{"ready", "failed", "killed"}, state)
	}, &state, &status)
}

// ownEnds are ends of the command by itself. Exit status 137 is none for its memory without evidence.
func ownEnds() map[string]end {
	return map[string]end{
		"exit status 0":                             {command: "echo done"},
		"exit status 3":                             {command: "echo 'cannot open data.csv' >&2; exit 3"},
		"exit status 137":                           {command: "exit 137"},
		"it kills itself":                           {command: "kill -9 $$"},
		"a child is killed, not for its memory":     {command: "sleep 600 & kill -9 $!; wait $!"},
		"it needs too much memory":                  {command: "exec tail /dev/zero"},
		"a child needs too much memory":             {command: "tail /dev/zero; exit 1"},
		"a child needs too much memory, no failure": {command: "tail /dev/zero; echo survived"},
	}
}

// limitEnds are ends by a time limit or a deadline.
func limitEnds() map[string]end {
	return map[string]end{
		"the worker's time limit": {command: waitsForGo, args: []string{"--request-time", "2s"}},
		"TIMEOUT":                 {queue: "nolimit", command: waitsForGo},
		"TIMEOUT, after an administrator lowered the limit": {command: waitsForGo, act: func(t *testing.T, b *bundle) {
			t.Helper()
			b.site.s.root(t, "scontrol", "update", "JobId="+b.runs(t), "TimeLimit=1")
		}},
		"the worker's time limit, after an administrator lengthened the job's": {
			command: waitsForGo, args: []string{"--request-time", "90s"}, act: func(t *testing.T, b *bundle) {
				t.Helper()
				b.site.s.root(t, "scontrol", "update", "JobId="+b.runs(t), "TimeLimit=+1")
				b.status(t, "longer than at first")
			},
		},
		// Jobs that have the reservation's licences run on any node.
		"TIMEOUT, its reservation has ended": {queue: "reserved", command: waitsForGo, prepare: func(t *testing.T, s *site) {
			t.Helper()
			s.s.root(t, "scontrol", "create", "reservation", "ReservationName=cltestends", "StartTime=now", "Duration=60",
				"Flags=ANY_NODES", "Licenses=cltest:1", "Users=researcher")
		}, act: func(t *testing.T, b *bundle) {
			t.Helper()
			b.runs(t)
			b.site.s.root(t, "scontrol", "update", "ReservationName=cltestends", "EndTime=now+60")
		}},
		"DEADLINE": {queue: "deadline", command: waitsForGo, prepare: func(t *testing.T, s *site) { // another job has the node
			t.Helper()
			s.s.owner(t, "sbatch", "--partition=deadline", "--account=lab", "--mem=16", "--time=10", "--output=/dev/null", "--wrap=sleep 900")
		}},
	}
}

// lent is a licence that slurmdbd has for the cluster.
const lent = "cltest@server"

// lend gives the cluster a licence, and takes it away.
func (s *slurm) lend(t *testing.T, add bool) {
	t.Helper()
	name, server, _ := strings.Cut(lent, "@")
	resource := []string{"resource", "name=" + name, "server=" + server}
	if !add {
		s.root(t, slices.Concat([]string{"sacctmgr", "--immediate", "delete"}, resource)...)
		return
	}
	s.root(t, slices.Concat([]string{"sacctmgr", "--immediate", "add"}, resource,
		[]string{"type=license", "count=2", "cluster=clslurm", s.either("percentallowed=100", "allowed=100")})...)
	testenv.Await(t, "slurmctld has the licence", func() bool {
		said, _ := s.try("scontrol", "show", "licenses")
		return strings.Contains(said, lent)
	})
}

// cancelEnds are ends at somebody's wish.
func cancelEnds() map[string]end {
	cancel := func(as func(t *testing.T, b *bundle, args ...string), args ...string) func(t *testing.T, b *bundle) {
		return func(t *testing.T, b *bundle) {
			t.Helper()
			as(t, b, append(append([]string{"scancel"}, args...), b.runs(t))...)
		}
	}
	byRoot := func(t *testing.T, b *bundle, args ...string) { t.Helper(); b.site.s.root(t, args...) }
	byOwner := func(t *testing.T, b *bundle, args ...string) { t.Helper(); b.site.s.owner(t, args...) }
	bySlurm := func(t *testing.T, b *bundle, args ...string) {
		t.Helper()
		b.site.s.root(t, append([]string{"setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups", b.site.s.Program(args[0])}, args[1:]...)...)
	}
	return map[string]end{
		"CANCELLED by its own user":         {command: waitsForGo, act: cancel(byOwner)},
		"CANCELLED by root":                 {command: waitsForGo, act: cancel(byRoot)},
		"CANCELLED by an administrator":     {command: waitsForGo, act: cancel(bySlurm)},
		"killed by scancel --signal=KILL":   {command: waitsForGo, act: cancel(byRoot, "--full", "--signal=KILL")},
		"told TERM by scancel":              {command: waitsForGo, act: cancel(byRoot, "--full", "--signal=TERM")},
		"CANCELLED by root while it waits":  {queue: "closed", command: waitsForGo, act: whileItWaits(func(t *testing.T, b *bundle, id string) { t.Helper(); b.site.s.root(t, "scancel", id) })},
		"CANCELLED by its user as it waits": {queue: "closed", command: waitsForGo, act: whileItWaits(func(t *testing.T, b *bundle, id string) { t.Helper(); b.site.s.owner(t, "scancel", id) })},
		"killed by cl kill": {command: waitsForGo, act: func(t *testing.T, b *bundle) {
			t.Helper()
			b.runs(t)
			b.cl(t, "kill", b.uuid)
		}},
		"requeued by root": {queue: "closed", command: waitsForGo, act: whileItWaits(func(t *testing.T, b *bundle, id string) { // so the bridge has seen the job
			t.Helper()
			b.site.s.root(t, "scontrol", "update", "JobId="+id, "Partition=cpu")
			requeued(t, b)
			testenv.Await(t, "the bridge knows it", func() bool {
				state, status := b.shown(t)
				return state != "running" || strings.Contains(status, "back into the queue")
			})
			_, _ = b.site.s.try("scontrol", "update", "JobId="+id, "StartTime=now") // the bridge may have ended the job
		})},
		"killed by cl kill while it waits": {queue: "closed", command: waitsForGo, act: whileItWaits(func(t *testing.T, b *bundle, _ string) { t.Helper(); b.cl(t, "kill", b.uuid) })},
	}
}

// whileItWaits does something with a bundle whose job waits for its partition.
func whileItWaits(act func(t *testing.T, b *bundle, id string)) func(t *testing.T, b *bundle) {
	return func(t *testing.T, b *bundle) {
		t.Helper()
		j := b.job(t, "PartitionDown")
		b.status(t, "(PartitionDown)")
		act(t, b, j.id)
	}
}

// preemptEnds are preemptions in each mode.
func preemptEnds() map[string]end {
	whole := []string{"--request-cpus", "64"}
	return map[string]end{
		"PREEMPTED, CANCEL":  {queue: "lowcancel", command: waitsForGo, args: whole, act: func(t *testing.T, b *bundle) { t.Helper(); b.preempt(t, "highcancel") }},
		"PREEMPTED, REQUEUE": {queue: "lowrequeue", command: waitsForGo, args: whole, act: func(t *testing.T, b *bundle) { t.Helper(); b.preempt(t, "highrequeue") }},
		"PREEMPTED, SUSPEND": {queue: "lowsuspend", command: waitsForGo, args: whole, act: func(t *testing.T, b *bundle) {
			t.Helper()
			other := b.preempt(t, "highsuspend")
			b.suspended(t)
			b.site.s.owner(t, "scancel", other)
			b.goOn(t)
		}},
		"PREEMPTED, GANG": {queue: "turns", command: waitsForGo, args: whole, act: func(t *testing.T, b *bundle) {
			t.Helper()
			other := b.preempt(t, "turns")
			b.job(t, "SUSPENDED")
			b.job(t, "RUNNING")
			b.job(t, "SUSPENDED")
			b.goOn(t)
			t.Cleanup(func() { b.site.s.owner(t, "scancel", other) })
		}},
	}
}

// preempt submits a job that needs the bundle's node, and returns its id.
func (b *bundle) preempt(t *testing.T, partition string) string {
	t.Helper()
	b.runs(t)
	return b.site.s.owner(t, "sbatch", "--parsable", "--partition="+partition, "--account=lab", "--cpus-per-task=64", "--mem=16", "--time=10",
		"--output=/dev/null", "--wrap=sleep 900")
}

// nodeEnds are failures of nodes.
func nodeEnds() map[string]end {
	return map[string]end{
		"NODE_FAIL, the node is set down": {queue: "down", command: waitsForGo, act: func(t *testing.T, b *bundle) {
			t.Helper()
			b.runs(t)
			b.site.s.root(t, "scontrol", "update", "NodeName=n11", "State=DOWN", "Reason=cltest")
		}},
		"BOOT_FAIL": {command: waitsForGo, act: func(t *testing.T, b *bundle) {
			t.Helper()
			b.site.s.failBoot(t, b.runs(t))
		}},
		"NODE_FAIL, the node has no network": {queue: "lost", command: waitsForGo, act: func(t *testing.T, b *bundle) {
			t.Helper()
			b.runs(t)
			b.site.s.root(t, "ip", "link", "set", b.site.s.Bridge+"-n12", "down")
		}},
	}
}

// launchEnds are jobs that their nodes cannot launch.
func launchEnds() map[string]end {
	return map[string]end{
		"the prolog fails": {queue: "prologfails", command: waitsForGo, prepare: func(t *testing.T, s *site) {
			t.Helper()
			_ = s.s.prologFails(t, "prologfails", "n8")
		}},
		"the node does not see the shared disk": {queue: "nodisk", command: waitsForGo, prepare: func(t *testing.T, s *site) {
			t.Helper()
			s.s.onNode(t, "n10", "mount -t tmpfs -o size=1m none "+s.Shared)
		}},
	}
}

// noEnds are events after which a run goes on, or begins.
func noEnds() map[string]end {
	all := map[string]end{
		"no end: suspended by root": {command: waitsForGo, act: func(t *testing.T, b *bundle) {
			t.Helper()
			id := b.runs(t)
			b.site.s.root(t, "scontrol", "suspend", id)
			b.suspended(t)
			b.site.s.root(t, "scontrol", "resume", id)
			b.goOn(t)
		}},
		"no end: stopped by scancel": {command: waitsForGo, act: func(t *testing.T, b *bundle) {
			t.Helper()
			id := b.runs(t)
			b.site.s.root(t, "scancel", "--full", "--signal=STOP", id)
			testenv.AwaitStopped(t, b.site.s.Cluster, id)
			b.site.s.root(t, "scancel", "--full", "--signal=CONT", id)
			b.goOn(t)
		}},
		"no end: its node is drained": {queue: "drained", command: waitsForGo, act: func(t *testing.T, b *bundle) {
			t.Helper()
			b.runs(t)
			b.site.s.root(t, "scontrol", "update", "NodeName=n14", "State=DRAIN", "Reason=cltest")
			b.goOn(t)
		}},
		"no end: the licences that it has are taken from the cluster": {queue: "licensed", command: waitsForGo, prepare: func(t *testing.T, s *site) {
			t.Helper()
			s.s.lend(t, true)
		}, act: func(t *testing.T, b *bundle) {
			t.Helper()
			b.runs(t)
			b.site.s.lend(t, false)
			b.goOn(t)
		}},
		"no end: its node does not know the user": {queue: "unknownuser", command: "echo done", prepare: func(t *testing.T, s *site) {
			t.Helper() // slurmctld has told it the name
			s.s.onNode(t, "n9", "sed /^researcher:/d /etc/passwd >/tmp/cltest.passwd; mount --bind /tmp/cltest.passwd /etc/passwd")
		}},
		"no end: its node's slurmd is silent for a while": {queue: "silent", command: waitsForGo, act: func(t *testing.T, b *bundle) {
			t.Helper()
			b.runs(t)
			slurmd := b.site.s.slurmd(t, "n13")
			b.site.s.root(t, "kill", "-STOP", slurmd)
			t.Cleanup(func() { b.site.s.root(t, "kill", "-CONT", slurmd) })
			b.goOn(t)
			b.until(t, "ready")
		}},
		"no end: launch failed requeued held, and released": {queue: "held", command: "echo done", act: heldAfterAFailedLaunch},
	}
	for change, setting := range map[string]string{"its time limit is lowered": "TimeLimit=30", "it is renamed": "JobName=other", "it gets another comment": "Comment=other"} {
		all["no end: "+change+" while it runs"] = end{command: waitsForGo, act: func(t *testing.T, b *bundle) {
			t.Helper()
			b.site.s.root(t, "scontrol", "update", "JobId="+b.runs(t), setting)
			b.goOn(t)
		}}
	}
	for change, settings := range map[string][]string{
		"it is moved to another partition": {"Partition=cpu"}, "it is renamed and moved": {"JobName=other", "Partition=cpu"},
		"it gets less time and is moved": {"TimeLimit=30", "Partition=cpu"}, "it gets a lower priority and is moved": {"Nice=100", "Partition=cpu"},
	} {
		all["no end: "+change+" while it waits"] = end{queue: "closed", command: "echo done", act: whileItWaits(func(t *testing.T, b *bundle, id string) {
			t.Helper()
			for _, setting := range settings {
				b.site.s.root(t, "scontrol", "update", "JobId="+id, setting)
			}
		})}
	}
	all["no end: it is held, moved and released"] = end{queue: "closed", command: "echo done", act: whileItWaits(func(t *testing.T, b *bundle, id string) {
		t.Helper()
		b.site.s.root(t, "scontrol", "hold", id)
		b.status(t, "(JobHeldAdmin)")
		b.site.s.root(t, "scontrol", "update", "JobId="+id, "Partition=cpu")
		b.site.s.root(t, "scontrol", "release", id)
	})}
	return all
}

// heldAfterAFailedLaunch makes a node fail to launch a job that an administrator has made requeueable, and releases it.
func heldAfterAFailedLaunch(t *testing.T, b *bundle) {
	t.Helper()
	s := b.site.s
	id := b.job(t, "PartitionDown").id
	s.root(t, "scontrol", "update", "JobId="+id, "Requeue=1")
	mend := s.prologFails(t, "held", "n15")
	s.root(t, "scontrol", "update", "PartitionName=held", "State=UP")
	b.job(t, "launch failed requeued held")
	b.status(t, "launch failed requeued held")
	mend()
	s.root(t, "scontrol", "release", id)
	s.root(t, "scontrol", "update", "JobId="+id, "StartTime=now")
}

// requeued puts the job of a bundle that runs back into the queue. The bridge's jobs may not be requeued, until an
// administrator changes that.
func requeued(t *testing.T, b *bundle) {
	t.Helper()
	id := b.runs(t)
	b.site.s.root(t, "scontrol", "update", "JobId="+id, "Requeue=1")
	b.site.s.root(t, "scontrol", "requeue", id)
}
