package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// Slurm has the commands of Slurm that [Jobs] and [Hold] use. *sbatch.Client is one.
type Slurm interface {
	Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error)
	Describe(ctx context.Context, id sbatch.JobID) (sbatch.Details, error)
	Observe(ctx context.Context, now time.Time) (sbatch.Snapshot, error)
	Cancel(ctx context.Context, name string, ids ...sbatch.JobID) error
}

// Jobs sends a short job to a queue. The job and this host meet on the shared disk
// (package probe). Jobs is safe for concurrent use.
type Jobs struct {
	Slurm Slurm
	// Shared is the shared directory, Settle how long its disk may take to show
	// what a node wrote.
	Shared string
	Settle time.Duration
	// BeginWithin bounds the time until a job begins, and then the time until its report is seen; 0 means a
	// minute.
	BeginWithin time.Duration
	// ObserveEvery is the pause between two questions to Slurm about a job; 0 means two
	// seconds.
	ObserveEvery time.Duration
	// Node is a node on which the job has to run; empty means any.
	Node string
	Now  func() time.Time
}

// Outcome is the outcome of a job, as this host has seen it.
type Outcome struct {
	Job sbatch.Job
	// Heard is the time from the submission until the job's report was seen: on NFS perhaps long after the job
	// began. RoundTrip is a message to the job and back, over the disk.
	Heard     time.Duration
	RoundTrip probe.Trip
	// Report is the node's; nil where none is seen here.
	Report *probe.Heard
	// Machine is the output of uname -m on the node, Output that of the worker.
	Machine, Output string
	// NotBegun is set for a job that had not begun in time, and was cancelled. Waited is the time for which
	// this host waited in vain: for the begin of a job, or for its files.
	NotBegun bool
	Waited   time.Duration
	// Err is set if nothing is known, RoundTripErr if the disk was not measured, and Unseen if Slurm did not
	// show the job when it was last asked.
	Err, RoundTripErr, Unseen error

	meetingDir string // in the shared directory, and gone
}

const (
	defaultBeginWithin = time.Minute
	// meetingTime is the time limit of a job without the time for its report. jobMemory is its memory in
	// mebibytes.
	meetingTime = 2 * time.Minute
	jobMemory   = 512
	// roundTripWithin bounds the time that the disk takes. Attribute caches of usual mounts last a minute, so
	// it is longer.
	roundTripWithin = 100 * time.Second
	// lookEvery is the pause between two looks for the report.
	lookEvery = 100 * time.Millisecond
)

// Run submits a job that asks for this number of GPUs, and waits for its outcome. The
// job runs the queue's own worker, or this one where the queue has none. Run leaves
// neither the job nor its directory behind.
func (j Jobs) Run(ctx context.Context, q plan.Queue, gpus int64, worker sbatch.Program) (out Outcome) {
	meeting, err := probe.Call(ctx, j.Shared)
	if err != nil {
		return Outcome{Err: err}
	}
	defer func() { _ = meeting.End() }() //nolint:contextcheck // also after the end of ctx; on a disk in trouble the directory may stay
	request := j.request(q, gpus, cmp.Or(q.Worker, worker), meeting)
	id, err := j.Slurm.Submit(ctx, request)
	if err != nil {
		return Outcome{Err: err}
	}
	defer func() {
		if out.Job.State.Ended() || out.Report != nil && out.RoundTripErr == nil {
			return // it has ended, or is about to
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_ = j.Slurm.Cancel(ctx, request.Name, id) // its own time limit ends it soon
	}()
	w := jobWait{Jobs: j, meeting: meeting, submitted: j.Now()}
	w.out.meetingDir = meeting.Dir
	w.out.Job = sbatch.Job{ID: id, Name: request.Name, State: sbatch.StatePending}
	return w.wait(ctx)
}

// within is BeginWithin, or its default.
func (j Jobs) within() time.Duration { return cmp.Or(j.BeginWithin, defaultBeginWithin) }

// request returns a job of the queue that runs the worker's probe.
func (j Jobs) request(q plan.Queue, gpus int64, worker sbatch.Program, m probe.Meeting) sbatch.Request {
	within := j.within() + meetingTime
	if q.MaxTime > 0 {
		within = min(within, q.MaxTime)
	}
	r := smallJob(q, gpus, within)
	r.Name, r.Comment = "cl-doctor-"+q.Name+"-"+strings.ToLower(m.Dir[max(0, len(m.Dir)-6):]), "codalab doctor"
	// A node that does not see the directory cannot write there either. Only the
	// job's state, FAILED, tells of that.
	r.Dir, r.Output = "/", "/dev/null"
	if j.Node != "" {
		r.Extra = append(slices.Clone(r.Extra), "--nodelist="+j.Node)
	}
	probing := worker.Exec("probe", "--meet", sbatch.Quote(m.Dir), "--runtime", cmp.Or(string(q.Runtime), "auto"), "--scratch", sbatch.Quote(q.Scratch))
	r.Script = fmt.Sprintf("#!/bin/sh\ncd %s || exit 3\nuname -m >%s\n(\n%s) >%s 2>&1\nexit 0\n", sbatch.Quote(m.Dir), probe.MachineName, probing, probe.OutputName)
	return r
}

// oneGPU returns the number of GPUs that the job of a queue asks for: one where the queue's nodes have any, so that the job
// sees the way from their driver to a container.
func oneGPU(q plan.Queue, s Site) int64 {
	if of, check := partition(q, s); check.Verdict != Failed && of.Most.GPUs > 0 {
		return 1
	}
	return 0
}

// smallJob returns a small job of a queue, without a name or a script.
func smallJob(q plan.Queue, gpus int64, within time.Duration) sbatch.Request {
	r := q.Request(gpus)
	r.CPUs, r.MemoryMiB, r.Time = 1, jobMemory, within
	return r
}

// jobWait is the wait for one job.
type jobWait struct {
	Jobs
	meeting   probe.Meeting
	submitted time.Time
	running   time.Time // when it was first seen to run
	ended     time.Time // when it was first seen to have ended
	out       Outcome
}

func (w *jobWait) wait(ctx context.Context) Outcome {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	observe := time.NewTicker(cmp.Or(w.ObserveEvery, 2*time.Second))
	defer observe.Stop()
	for !w.over(ctx) {
		select {
		case <-ctx.Done():
			w.out.Err = ctx.Err()
			return w.out
		case <-look.C:
		case <-observe.C:
			w.observe(ctx)
		}
	}
	if silent := (*diskspace.SilentError)(nil); !errors.As(w.out.Err, &silent) {
		w.out.Machine, w.out.Output = w.meeting.Text(ctx, probe.MachineName), w.meeting.Text(ctx, probe.OutputName)
	}
	return w.out
}

// over looks for the job's report. It returns whether the wait is over.
func (w *jobWait) over(ctx context.Context) bool {
	heard, there, err := w.meeting.Hear(ctx)
	now := w.Now()
	switch {
	case err != nil:
		w.out.Err = err
		return true
	case there:
		w.out.Report, w.out.Heard = &heard, now.Sub(w.submitted)
		ctx, cancel := context.WithTimeout(ctx, roundTripWithin)
		defer cancel()
		w.out.RoundTrip, w.out.RoundTripErr = w.meeting.RoundTrip(ctx, w.Now)
		w.observe(ctx) // it names the job's node
		return true
	case !w.ended.IsZero():
		w.out.Waited = now.Sub(w.ended)
		return w.out.Waited > w.Settle
	case !w.running.IsZero():
		w.out.Waited = now.Sub(w.running)
		return w.out.Waited > w.within()+w.Settle
	}
	w.out.Waited = now.Sub(w.submitted)
	w.out.NotBegun = w.out.Waited > w.within()
	return w.out.NotBegun
}

// observe asks Slurm for the state of the job.
func (w *jobWait) observe(ctx context.Context) {
	now := w.Now()
	var s sbatch.Snapshot
	if s, w.out.Unseen = w.Slurm.Observe(ctx, now); w.out.Unseen != nil {
		return // observe is called again
	}
	for _, job := range s.ByName()[w.out.Job.Name] {
		if job.ID != w.out.Job.ID {
			continue
		}
		w.out.Job = job
		switch {
		case job.State.Ended() && w.ended.IsZero():
			w.ended = now
		case job.State != sbatch.StatePending && job.State != sbatch.StateConfiguring && w.running.IsZero():
			w.running = now
		}
	}
}
