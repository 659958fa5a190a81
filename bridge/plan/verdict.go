package plan

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// killVerdict returns the verdict of a bundle that the server asked to kill. CodaLab's own text is the default,
// because servers recognize a kill by it.
func killVerdict(message string) Verdict {
	if message == "" {
		message = codalab.KillRequested
	}
	return Verdict{Cause: spool.CauseUser, Failure: message}
}

// fromSlurm returns the verdict that follows from the job's state. The attempt has no exit record, or one
// that says only that the job was terminated.
func (d *decision) fromSlurm() Verdict {
	job, ran := d.row.Job, d.whenItEnded()
	if v, ok := d.fromExitStatus(); ok && d.row.Exit == nil && !d.row.Requeued { // else the status is that of a later start
		return v
	}
	switch {
	case d.row.Standalone:
		return d.fromProcess(ran)
	case d.row.Pack && d.row.Requeued: // the job's end is that of a later run, with other members
		return d.putBack("")
	}
	switch job.State {
	case sbatch.StateTimeout:
		return d.timedOut(ran)
	case sbatch.StateDeadline: // sbatch(1): --deadline, which only a queue's options set
		if d.row.Begun == nil {
			return Verdict{Cause: spool.CauseLimit, Failure: fmt.Sprintf(
				"Slurm removed job %s before it began: it could not end any more by the deadline that the options of queue %s set. "+
					"Ask for less with --request-time, or use another queue.", job.ID, d.queue.Tag)}
		}
		return Verdict{Cause: spool.CauseLimit, Failure: fmt.Sprintf(
			"Slurm ended job %s at the deadline that the options of queue %s set, %s.", job.ID, d.queue.Tag, ran)}
	case sbatch.StateOutOfMemory:
		return d.outOfMemory()
	case sbatch.StateCancelled:
		switch {
		case d.launchFailed() && d.mayHaveBegun():
			return platform("Slurm job %s was cancelled on %s, and its records are gone from the shared disk.", job.ID, job.Nodes)
		case d.launchFailed():
			return platform("Slurm ended job %s on %s before its worker began, as it does if a node cannot launch a job: "+
				"its prolog failed, its spool directory was full, or it was too slow.", job.ID, job.Nodes)
		}
		return Verdict{Cause: spool.CauseUser, Failure: fmt.Sprintf(
			"Slurm job %s was cancelled outside CodaLab%s %s.", job.ID, by(job), ran)}
	case sbatch.StatePreempted:
		return platform("Slurm preempted job %s %s: a job with a higher priority needed its resources.", job.ID, ran)
	case sbatch.StateRevoked:
		return platform("Another cluster of the federation took Slurm job %s, and it ended %s, or that cluster does not see the shared disk.", job.ID, ran)
	case sbatch.StateNodeFail, sbatch.StateBootFail:
		return platform("The node of Slurm job %s failed %s (%s).", job.ID, ran, job.State)
	default: // every other state, unknown ones too, is the last case
	}
	if d.row.Requeued {
		return d.putBack("")
	}
	output := ""
	switch {
	case d.row.OutputTail != "":
		output = " The end of its output: " + d.row.OutputTail
	case d.row.Begun == nil && job.Nodes != "" && !d.mayHaveBegun():
		return platform("Slurm job %s ended on %s (%s) and left nothing on the shared disk, which that node may not see. "+
			"The bridge's operator can try it with: cl-bridge doctor", job.ID, job.Nodes, job.State)
	}
	if signal := signalOf(job.Exit); signal != 0 && d.row.Begun != nil {
		return platform("Slurm job %s ended %s: signal %d ended its worker, and Slurm does not show who sent it.%s", job.ID, ran, signal, output)
	}
	if d.row.Begun != nil {
		ran += " and its worker left no exit record"
	}
	return platform("Slurm job %s ended %s (last seen %s).%s", job.ID, ran, job.State, output)
}

// whenItEnded says what the attempt had done when its job ended.
func (d *decision) whenItEnded() string {
	switch {
	case d.row.Begun != nil:
		return "while it ran on " + d.row.Node()
	case d.mayHaveBegun():
		return "and its records are gone from the shared disk"
	}
	return "before it began"
}

// timedOut returns the verdict on a job that Slurm's time limit ended. If the command has not started, the
// node was slow, and the bundle does not need more time.
func (d *decision) timedOut(ran string) Verdict {
	job := d.row.Job
	switch {
	case d.row.Begun == nil && !d.mayHaveBegun():
		return platform("Slurm's time limit ended job %s on %s before its worker began: the node was slow to start it.", job.ID, job.Nodes)
	case d.notStarted():
		return platform("Slurm's time limit ended job %s on %s before the command started: the node was slow to set the container up.", job.ID, d.row.Node())
	case d.row.Pack: // its own limit ends before the job's
		return platform("Slurm's time limit ended job %s, which the run shared with others, before the run's own time limit.", job.ID)
	case d.row.CommandBegan, d.row.Exit != nil:
		return Verdict{Cause: spool.CauseLimit, Failure: fmt.Sprintf(
			"Slurm's time limit ended job %s (%s). %s", job.ID, job.State, d.moreTime())}
	}
	return Verdict{Cause: spool.CauseLimit, Failure: fmt.Sprintf(
		"Slurm's time limit ended job %s (%s) %s, and no record shows whether the command had started. %s", job.ID, job.State, ran, d.moreTime())}
}

// moreTime names the time that the run had, and the change that helps.
func (d *decision) moreTime() string {
	had, most := d.queue.limit(d.row.Resources), d.queue.MaxTime
	ran, limits := d.longestRun(), d.row.TimeLimits
	switch {
	case limits.Now > 0 && limits.Now < limits.First && limits.First == sbatch.Unlimited:
		return fmt.Sprintf("An administrator or a rule of the site has given the job a time limit of %s: run it again, or ask the cluster's administrator.",
			codalab.FormatDuration(limits.Now))
	case limits.Now > 0 && limits.Now < limits.First:
		return fmt.Sprintf("An administrator or a rule of the site has shortened the job's time limit from %s to %s: "+
			"run it again, or ask the cluster's administrator.", codalab.FormatDuration(limits.First), codalab.FormatDuration(limits.Now))
	case limits.Now > limits.First && had > 0 && limits.Now != sbatch.Unlimited:
		return fmt.Sprintf("It had asked for %s, and the site has lengthened that by %s: ask for more with --request-time.",
			codalab.FormatDuration(had), codalab.FormatDuration(limits.Now-limits.First))
	case had <= 0:
		return "Ask for more with --request-time."
	case ran > 0 && ran < had-signalEarly-d.queue.KillGrace && d.reservation() != "":
		return fmt.Sprintf("It had asked for %s and ran for %s in the reservation %s, which has ended: "+
			"ask the cluster's administrator for a longer one, or run it in another queue.", codalab.FormatDuration(had), codalab.FormatDuration(ran), d.reservation())
	case ran > 0 && ran < had-signalEarly-d.queue.KillGrace:
		return fmt.Sprintf("It had asked for %s and ran for %s: an administrator or a rule of the site has shortened the job's time limit, or the job's reservation has ended. "+
			"Run it again, or ask the cluster's administrator.", codalab.FormatDuration(had), codalab.FormatDuration(ran))
	case most > 0 && had >= most:
		return fmt.Sprintf("It had %s, the most that queue %s allows: let the command save its state, and go on in another run, or use another queue.",
			codalab.FormatDuration(had), d.queue.Tag)
	case most > 0:
		return fmt.Sprintf("It had %s: ask for more with --request-time, at most %s.", codalab.FormatDuration(had), codalab.FormatDuration(most))
	}
	return fmt.Sprintf("It had %s: ask for more with --request-time.", codalab.FormatDuration(had))
}

// reservation returns the reservation in which the attempt's job is, by the queue or by the site's table of owners.
func (d *decision) reservation() string { return d.queue.Billed(d.policy.billing(d.row)).Reservation }

// longestRun returns the longest time for which the attempt can have run, 0 if that is not known.
func (d *decision) longestRun() time.Duration {
	r := &d.row
	if r.Begun == nil || r.Begun.At.IsZero() {
		return 0
	}
	end := r.NoJobSince
	if r.Exit != nil && !r.Exit.At.IsZero() {
		end = r.Exit.At
	}
	if end.IsZero() {
		return 0
	}
	return end.Sub(r.Begun.At).Round(time.Second)
}

// by names the user who cancelled a job, as far as Slurm shows that.
func by(job sbatch.Job) string {
	switch {
	case job.CancelledBy == "":
		return ""
	case job.CancelledBy == "0":
		return " by an administrator (root)"
	case job.Canceller != "":
		return " by user " + job.Canceller
	}
	return " by the user with the number " + job.CancelledBy
}

// notStarted reports whether the attempt's worker says that the command has not started.
func (d *decision) notStarted() bool { return d.row.Exit != nil && d.row.Exit.NotStarted }

// launchFailed reports whether the attempt's job was cancelled because its node could not launch it, as far
// as Slurm shows that. slurmd cancels such a job as user 0 if it may not be requeued, and the bridge's jobs
// may not (Slurm src/slurmd/slurmd/req.c: _launch_job_fail). If slurmd was silent for MessageTimeout, slurmctld
// has put the job back into the queue before that, although it may not be requeued (src/slurmctld/job_mgr.c:
// _job_complete). A pack that has begun a member was launched. An administrator's scancel of a job that is just being launched looks the same; the limit on
// attempts bounds that error.
func (d *decision) launchFailed() bool {
	r := &d.row
	by := r.Job.CancelledBy
	return r.Job.State == sbatch.StateCancelled && (by == "" || by == "0") && r.Job.Nodes != "" &&
		r.Begun == nil && !d.packHasBegun() && !r.Standalone && r.StopVerdict == nil
}

// fromProcess replaces fromSlurm for a stand-alone worker, whose jobs are processes of its host.
func (d *decision) fromProcess(ran string) Verdict {
	switch d.row.Job.State {
	case sbatch.StateTimeout:
		return Verdict{Cause: spool.CauseLimit, Failure: "The worker's time limit ended the run: ask for more with --request-time."}
	case sbatch.StateCancelled:
		return Verdict{Cause: spool.CauseUser, Failure: fmt.Sprintf("The run was stopped outside CodaLab %s.", ran)}
	case sbatch.StateNodeFail:
		return platform("The worker's host was restarted %s.", ran)
	default: // every other state is the last case
	}
	return platform("The run's process ended %s and left no exit record.", ran)
}

// fromExitStatus returns the verdict that follows from the job's exit status if the worker could not write
// its exit record, because the disk was full or failed. A command that failed may have failed for that, too, so
// the platform is at fault. It returns false if Slurm has no status, or not the command's.
func (d *decision) fromExitStatus() (Verdict, bool) {
	job, begun := d.row.Job, d.row.Begun
	status, signal, ok := strings.Cut(job.Exit, ":")
	code, err := strconv.Atoi(status)
	if d.row.Pack || !ok || err != nil || signal != "0" || begun == nil || begun.Job != job.ID.String() || !spool.IsCommandStatus(code) {
		return Verdict{}, false
	}
	switch {
	case job.State == sbatch.StateCompleted && code == 0:
		return Verdict{Cause: spool.CauseSucceeded, ExitCode: &code}, true
	case job.State == sbatch.StateFailed && code != 0:
		v := platform("Exit code %d, as Slurm shows it: node %s could not write to the shared disk, which may have been full.", code, d.row.Node())
		v.ExitCode = &code
		return v, true
	}
	return Verdict{}, false
}

// signalOf returns the signal that ended the batch script with such an exit; 0 if none did. Slurm also has numbers there
// that are none, such as 53 for an output file that cannot be opened.
func signalOf(exit string) int {
	_, signal, _ := strings.Cut(exit, ":")
	if n, err := strconv.Atoi(signal); err == nil && n > 0 && n < 32 {
		return n
	}
	return 0
}

// outOfMemory returns the verdict on a job that was out of memory and whose worker could not write it, in the worker's words (worker:
// memorySentence). The command's last peak may not have been measured.
func (d *decision) outOfMemory() Verdict {
	limit := d.row.Resources.Memory
	switch {
	case d.row.Pack: // some run of the pack took too much, and the worker's record tells which
		return platform("Slurm job %s, which the run shared with others, was out of memory, and its worker left no record of the run's end.", d.row.Job.ID)
	case limit <= 0:
		return Verdict{Cause: spool.CauseLimit, Failure: "Memory limit of the job exceeded. Ask for more with --request-memory."}
	}
	used := limit
	if s := d.row.Status; s != nil {
		used = max(used, s.Usage.MemoryPeak)
	}
	return Verdict{Cause: spool.CauseLimit, Failure: fmt.Sprintf("Memory limit %s exceeded (used %s). Ask for more with --request-memory.", codalab.FormatSize(limit), codalab.FormatSize(used))}
}

func platform(format string, args ...any) Verdict {
	return Verdict{Cause: spool.CausePlatform, Failure: fmt.Sprintf(format, args...)}
}

// requested describes the bundle's request in one phrase.
func (d *decision) requested() string {
	res := d.row.Resources
	parts := []string{termtext.Count(res.CPUs, "CPU")}
	if res.GPUs > 0 {
		parts = append(parts, termtext.Count(res.GPUs, "GPU"))
	}
	if res.Memory > 0 {
		parts = append(parts, codalab.FormatSize(res.Memory)+" of memory")
	}
	if limit := d.queue.limit(res); limit > 0 {
		parts = append(parts, codalab.FormatDuration(limit))
	}
	return strings.Join(parts, ", ")
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

func trimDot(s string) string { return strings.TrimSuffix(s, ".") }

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
