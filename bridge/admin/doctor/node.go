package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/clocks"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// Place has the values with which a node is compared: the shared directory, disk_settle, and those of the bridge's host.
type Place struct {
	// Node is the node to which jobs were sent; empty means any.
	Node string

	Shared       string
	Settle       time.Duration
	Architecture string
	// IDs are the subordinate ids of the account on the bridge's host; empty if it has none.
	IDs string
	// DiskClock is the shared disk's clock against the bridge's host's; nil if it could not be read.
	DiskClock *clocks.Offset
}

// Node judges the outcome of a queue's job.
func Node(q plan.Queue, at Place, out Outcome) []Check {
	name := key(q, "job")
	where := "job " + out.Job.ID.String()
	if out.Job.Nodes != "" {
		where += " on " + out.Job.Nodes
	}
	var refused *sbatch.Error
	var hangs *diskspace.SilentError
	switch {
	case errors.As(out.Err, &hangs):
		return []Check{unreachable("shared", hangs.Error(), isSilent)}
	case errors.As(out.Err, &refused) && refused.Refused && at.Node != "":
		return []Check{failed(name, refusedWords+refused.Message, fmt.Sprintf("is %s a node of the queue's partition? sinfo -N shows it", at.Node))}
	case errors.As(out.Err, &refused):
		return []Check{unsubmitted(q, out.Err)}
	case out.Err != nil && out.Job.ID == 0:
		return []Check{failed(name, out.Err.Error(), "")}
	case out.Err != nil:
		return []Check{failed(name, where+": "+out.Err.Error(), "")}
	case out.Report != nil:
		return report(q, at, out)
	case out.NotBegun:
		return []Check{notBegun(q, where, out)}
	case !out.Job.State.Ended():
		return []Check{silent(q, at, where, out)}
	case out.Machine != "":
		return []Check{withoutReport(q, at, where, out)}
	}
	return []Check{withoutTrace(q, at, where, out)}
}

// Elsewhere replaces what was found for queues whose jobs do not run on a named node, if those of another queue do.
func Elsewhere(node string, queues []string, found [][]Check) [][]Check {
	if node == "" || !slices.ContainsFunc(found, func(checks []Check) bool { return len(checks) > 1 }) {
		return found
	}
	for i, checks := range found {
		if len(checks) == 1 && strings.HasPrefix(checks[0].Found, refusedWords) {
			found[i] = []Check{ok("queue."+queues[i]+".job", "it was not tried: its jobs do not run on %s (%s)", node, strings.TrimPrefix(checks[0].Found, refusedWords))}
		}
	}
	return found
}

// longer is the advice about a job that needed more time than it got.
const longer = "try again with a longer --wait, such as --wait 5m"

// notBegun judges a job that had not begun in time.
func notBegun(q plan.Queue, where string, out Outcome) Check {
	name, waited := key(q, "job"), codalab.SpellDuration(out.Waited.Round(time.Second))
	switch {
	case out.Unseen != nil:
		return unreachable(name, fmt.Sprintf("no file of %s appeared for %s, and Slurm does not show its state: %v; doctor asked Slurm to cancel it", where, waited, out.Unseen), "try again later")
	case out.Job.State == sbatch.StateConfiguring:
		return warning(name, fmt.Sprintf("%s had not begun %s after sbatch: CONFIGURING, its nodes were still being made ready; it was cancelled", where, waited), longer)
	case out.Job.Start.IsZero():
		return warning(name, fmt.Sprintf("%s had not begun %s after sbatch: %s; it was cancelled, and its nodes are not known", where, waited, cmp.Or(out.Job.Reason, "None")),
			"try again when the queue is less busy, or with a longer --wait")
	}
	return warning(name, fmt.Sprintf("%s had not begun %s after sbatch: %s, and is expected to begin at %s; it was cancelled",
		where, waited, out.Job.Reason, out.Job.Start.UTC().Format("2006-01-02 15:04 UTC")), "try again when the queue is less busy, or with a longer --wait")
}

// silent judges a job that Slurm called running, and that had left no report when it was cancelled. A
// slow node looks so, and so does one on which something hangs.
func silent(q plan.Queue, at Place, where string, out Outcome) Check {
	seen := "no file of it appeared in " + at.Shared
	if out.Machine != "" {
		seen = "its cl-worker had started and not reported"
	}
	return warning(key(q, "job"), fmt.Sprintf("%s was %s for %s, and %s; it was cancelled", where, out.Job.State, codalab.SpellDuration(out.Waited.Round(time.Second)), seen), longer)
}

// withoutTrace judges a job that ended and left nothing.
func withoutTrace(q plan.Queue, at Place, where string, out Outcome) Check {
	byHand := fmt.Sprintf("try by hand: sbatch --wrap 'ls -ld %s'", at.Shared)
	switch {
	case out.Job.State == sbatch.StateFailed && out.Job.Reason == "NonZeroExitCode":
		return failed("shared", fmt.Sprintf("%s does not see this host's files in %s", where, at.Shared), "name a directory that is on a disk of this host and of the nodes, at the same path")
	case out.Job.State == sbatch.StateCompleted:
		return failed(key(q, "job"), fmt.Sprintf("%s is COMPLETED, and no file of it appeared in %s within %s", where, at.Shared, codalab.SpellDuration(out.Waited.Round(time.Second))),
			"what it wrote is on another disk, or shows later than disk_settle: "+byHand)
	case out.Job.State == sbatch.StateTimeout:
		return warning(key(q, "job"), where+" reached its time limit before a file of it appeared in "+at.Shared, "the node may start jobs slowly: "+byHand)
	}
	return failed(key(q, "job"), fmt.Sprintf("%s is %s (%s), and no file of it appeared in %s", where, out.Job.State, cmp.Or(out.Job.Reason, "None"), at.Shared),
		"slurmd's log on the node and scontrol show job "+out.Job.ID.String()+" say why; "+byHand)
}

// withoutReport judges a job that ended, and that saw the shared directory and left no report.
func withoutReport(q plan.Queue, at Place, where string, out Outcome) Check {
	arch := string(config.Architecture(out.Machine).Canonical())
	wanted := cmp.Or(q.Architecture, at.Architecture)
	switch said := lastLine(out.Output); {
	case arch != wanted:
		return failed(key(q, "architecture"), fmt.Sprintf("%s is %s, and the queue's cl-worker is for %s", where, out.Machine, wanted),
			fmt.Sprintf("write architecture = %q, and name a cl-worker for it in a table [workers]", arch))
	case out.Job.State == sbatch.StateTimeout:
		return warning(key(q, "job"), where+" reached its time limit before its cl-worker had reported", longer)
	case said != "":
		return failed(key(q, "job"), where+": cl-worker fails: "+said, "")
	}
	return failed(key(q, "job"), fmt.Sprintf("%s is %s (%s), and its cl-worker left neither a report nor a message", where, out.Job.State, cmp.Or(out.Job.Reason, "None")),
		"slurmd's log on the node and scontrol show job "+out.Job.ID.String()+" say why")
}

// report judges a node by its report.
func report(q plan.Queue, at Place, out Outcome) []Check {
	r := out.Report
	checks := []Check{
		ok(key(q, "job"), "job %s ran on %s: Linux %s, %s; its report was here %.1f s after sbatch", out.Job.ID, r.Node, r.Kernel, r.Machine, out.Heard.Seconds()),
		disk(at, out),
	}
	arch, wanted := string(config.Architecture(r.Machine).Canonical()), cmp.Or(q.Architecture, at.Architecture)
	if arch != wanted {
		checks = append(checks, failed(key(q, "architecture"), fmt.Sprintf("%s is %s, and images and the cl-worker of this queue are for %s", r.Node, arch, wanted),
			fmt.Sprintf("write architecture = %q, and name a cl-worker for it in a table [workers]", arch)))
	}
	if r.Scratch != "" {
		return append(checks, failed(key(q, "scratch"), fmt.Sprintf("%s cannot be used on %s: %s", q.Scratch, r.Node, r.Scratch), "name a directory on the nodes' own disk that anyone may write to"))
	}
	if r.Noexec {
		checks = append(checks, warning(key(q, "scratch"), fmt.Sprintf("%s is mounted noexec on %s: commands cannot execute programs that they write to $TMPDIR, nor with workdir = \"local\" to their working directory", q.Scratch, r.Node),
			"name a directory that is mounted without noexec"))
	}
	checks = append(checks, containers(q, r.Report))
	checks = append(checks, network(q, r.Report)...)
	checks = append(checks, processes(q, r.Report)...)
	return append(append(checks, cgroup(q, r.Report)), facts(q, at, out)...)
}

// disk judges the shared disk between this host and a node.
func disk(at Place, out Outcome) Check {
	r := out.Report
	switch {
	case r.Disk != "":
		return failed("shared", fmt.Sprintf("%s sees %s, whose disk is unfit: %s", r.Node, at.Shared, r.Disk), sharedfiles.OtherDisk)
	case out.RoundTripErr != nil && !errors.Is(out.RoundTripErr, context.DeadlineExceeded):
		return failed("shared", "the disk could not be measured: "+out.RoundTripErr.Error(), "")
	case out.RoundTripErr != nil:
		return failed("disk_settle", fmt.Sprintf("a new file did not appear on %s, or its answer here, within %s", r.Node, codalab.SpellDuration(roundTripWithin)), "mount the disk with shorter attribute caching (acregmax, acdirmax), and write a disk_settle above it")
	case out.RoundTrip.Took > at.Settle:
		return failed("disk_settle", fmt.Sprintf("a file took up to %.1f s to be seen between this host and %s, and disk_settle is %s", out.RoundTrip.Took.Seconds(), r.Node, codalab.SpellDuration(at.Settle)),
			fmt.Sprintf("write disk_settle = %q, or more", codalab.SpellDuration((2*out.RoundTrip.Took).Round(time.Second)+time.Second)))
	}
	return ok("shared", "files made here appear on %s within %.2f s, there and back (disk_settle is %s); hard links work", r.Node, out.RoundTrip.Took.Seconds(), codalab.SpellDuration(at.Settle))
}

// containers judges how the node runs containers.
func containers(q plan.Queue, r probe.Report) Check {
	name := key(q, "runtime")
	if r.Choice == nil {
		return failed(name, r.Node+": "+trimDot(r.Error), "docs/operators/start.md, What the nodes need")
	}
	var names, lacks []string
	for _, part := range r.Host.BuiltinParts() {
		names = append(names, part.Name)
		if part.Lack != "" {
			lacks = append(lacks, part.Name+" ("+trimDot(part.Lack)+")")
		}
	}
	found := fmt.Sprintf("%s runs containers by %s: %s", r.Node, r.Choice.Runtime, trimDot(r.Choice.Reason))
	if len(lacks) > 0 && r.Choice.Runtime == runtimes.Builtin {
		return warning(name, found, "each run unpacks its image; to mount images, the node lacks: "+strings.Join(lacks, "; "))
	}
	if len(lacks) == 0 {
		found += " (" + strings.Join(names, ", ") + ")"
	}
	if weaker := r.WeakerSentence(); weaker != "" {
		found += "; " + weaker
	}
	return ok(name, "%s", found)
}

// network judges whether the node gives bundles the network that the queue gives to those that request one. There is
// nothing to judge if that needs nothing of the node.
func network(q plan.Queue, r probe.Report) []Check {
	if q.Network == plan.NetworkOfHost || q.Network == plan.NetworkNever || r.Choice == nil || r.Choice.Runtime.IsEngine() {
		return nil
	}
	name, lack := key(q, "network"), trimDot(r.Host.Forwarder.Lack)
	if r.Choice.Plain {
		lack = fmt.Sprintf("%s runs with privileges (setuid)", r.Choice.Runtime)
	}
	switch {
	case lack != "":
		return []Check{warning(name, fmt.Sprintf("bundles that request a network, as most do, have none on %s: %s", r.Node, lack),
			`docs/containers.md, Networks; or write network = "host", or "never"`)}
	case r.Host.Forwarder.Path == "":
		return nil // a cl-worker of an older release
	}
	return []Check{ok(name, "bundles that request a network get one of their own on %s, by %s", r.Node, filepath.Base(r.Host.Forwarder.Path))}
}

// processes tells that a node cannot keep the queue's max_processes.
func processes(q plan.Queue, r probe.Report) []Check {
	if q.MaxProcesses == 0 || r.Choice == nil {
		return nil
	}
	runtime, lack := r.Choice.Runtime, trimDot(r.Host.Processes.Lack)
	switch features := r.Host.EngineOf(runtime); {
	case runtime.IsEngine() && features != nil && !features.Processes:
		lack = fmt.Sprintf("%s cannot limit the processes of its containers", runtime)
	case runtime.IsEngine():
		return nil
	case r.Choice.Plain:
		lack = fmt.Sprintf("%s runs with privileges (setuid)", runtime)
	}
	if lack == "" {
		return nil
	}
	return []Check{warning(key(q, "max_processes"), fmt.Sprintf("a bundle on %s can have as many processes as its account may: %s", r.Node, lack),
		"limit the account's processes on the node by other means (docs/security.md, Processes)")}
}

// cgroup judges whether the kernel keeps the memory limit of a run.
func cgroup(q plan.Queue, r probe.Report) Check {
	if r.Choice != nil && r.Choice.Runtime.IsEngine() {
		return engineMemory(q, r)
	}
	const (
		enough = 2 * jobMemory << 20
		do     = "the worker keeps limits by looking once a second; ConstrainRAMSpace=yes in cgroup.conf would have the kernel keep them"
	)
	name := key(q, "memory")
	switch {
	case r.Cgroup == "":
		return warning(name, r.Node+" has no memory cgroup for the job", do)
	case r.MemoryLimit == 0 || r.MemoryLimit > enough:
		return warning(name, fmt.Sprintf("the job's cgroup on %s has no limit near the requested memory", r.Node), do)
	}
	return ok(name, "%s keeps memory limits by the job's cgroup", r.Node)
}

// engineMemory judges whether an engine keeps memory limits. Its containers are not in the job's cgroup.
func engineMemory(q plan.Queue, r probe.Report) Check {
	engine, name := r.Choice.Runtime, key(q, "memory")
	if features := r.Host.EngineOf(engine); features == nil || !features.Memory {
		return warning(name, fmt.Sprintf("%s cannot limit the memory of its containers on %s", engine, r.Node), "the worker keeps limits by looking once a second")
	}
	return ok(name, "%s keeps memory limits on %s, by the cgroups of its containers", engine, r.Node)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

func trimDot(s string) string { return strings.TrimSuffix(s, ".") }
