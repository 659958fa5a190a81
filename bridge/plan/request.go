package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Request returns the part of a request to Slurm that all jobs of the queue share: partition, account and
// so on. With gpus, it also requests so many GPUs of the queue's type. The caller adds the name, the
// script and the rest.
func (q Queue) Request(gpus int64) sbatch.Request {
	r := sbatch.Request{
		Partition:   q.Partition,
		Account:     q.Account,
		QOS:         q.QOS,
		WCKey:       q.WCKey,
		Reservation: q.Reservation,
		Constraint:  q.Constraint,
		Extra:       q.Extra,
		GPUs:        gpus,
	}
	if gpus > 0 {
		r.GPUType = q.GPUType
	}
	if len(q.Path) > 0 {
		r.Env = []string{"PATH=" + strings.Join(append(slices.Clone(q.Path), sbatch.DefaultPath), ":")}
	}
	if q.givesTime() {
		// At a preemption with GraceTime Slurm signals a batch script only at the end of that
		// time. With PreemptParameters=send_user_signal it sends this one at the beginning
		// (slurm.conf(5): GraceTime, PreemptParameters).
		r.Extra = append(slices.Clone(q.Extra), "--signal=B:TERM@1")
	}
	return r
}

// Request returns the request for the job of a row's current attempt.
func (p Policy) Request(r Row) sbatch.Request {
	q, res := p.Queues[r.Queue].Billed(p.billing(r)), r.Resources
	attempt := p.Layout.Attempt(r.Bundle, r.OnDisk)
	req := q.Request(res.GPUs)
	req.Name = string(r.SubmissionName)
	req.Comment = p.comment(r)
	req.Exclude = r.Exclude
	req.CPUs = max(res.CPUs, 1)
	req.Nice = p.niceOf(&r)
	req.Dir, req.Output = attempt.Dir, attempt.OutputPath()
	req.Script = "#!/bin/sh\n" + cmp.Or(q.Worker, p.Worker).Exec("exec", "--submission="+p.Submission(r), sbatch.Quote(attempt.SpecPath()))
	if res.Memory > 0 {
		req.MemoryMiB = inMiB(res.Memory + q.MemoryOverhead)
	}
	req.Time = q.jobLimit(res)
	return req
}

// inMiB returns an amount of bytes in MiB, rounded up.
func inMiB(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// niceOf returns the nice value of a row's job.
func (p Policy) niceOf(r *Row) int64 {
	q := p.Queues[r.Queue].Billed(p.billing(*r))
	return min(max(-r.Run.Metadata.Int("request_priority"), 0), MaxNice-q.Nice) + q.Nice
}

// jobLimit returns the time limit of a request's job in whole minutes, as sbatch takes it; 0 for none.
func (q Queue) jobLimit(res codalab.Resources) time.Duration {
	limit := q.limit(res)
	if limit <= 0 {
		return 0
	}
	limit += q.TimeGrace
	if q.MaxTime > 0 {
		limit = min(limit, q.MaxTime)
	}
	return (limit + time.Minute - 1).Truncate(time.Minute)
}

// MaxNice is the largest nice value of a job (sbatch(1): --nice).
const MaxNice = 2147483645

// Submission returns text that tells a row's submission from all others, of this bridge and of others.
func (p Policy) Submission(r Row) string { return submissionID(p.Bridge, r.Generation) }

func submissionID(bridge string, generation int64) string {
	return fmt.Sprintf("%s.%d", bridge, generation)
}

// The references for bundles that name no image, if neither the site nor the server names one
// (codalab/lib/codalab_manager.py: init_config, "workers").
const (
	CodaLabCPUImage = "codalab/default-cpu:latest"
	CodaLabGPUImage = "codalab/default-gpu:latest"
)

// ImageReference returns the reference of the image for a row's bundle. If the bundle names none, the
// server has put its own default into the run message (codalab/server/bundle_manager.py:
// _get_docker_image); the queue's image has priority over that.
func (p Policy) ImageReference(r Row) string {
	q, res := p.Queues[r.Queue], r.Resources
	site, fallback := q.DefaultCPUImage, CodaLabCPUImage
	if res.GPUs > 0 {
		site, fallback = q.DefaultGPUImage, CodaLabGPUImage
	}
	if requested := r.Run.Metadata.String("request_docker_image"); requested != "" {
		if res.ImageReference == requested+":latest" { // the server added the tag; a file's name has none
			return requested
		}
		site = ""
	}
	return cmp.Or(site, res.ImageReference, fallback)
}

// Spec returns the specification for the worker of a row's current attempt.
func (p Policy) Spec(r Row) spool.Spec {
	q, res := p.Queues[r.Queue], r.Resources
	s := spool.Spec{
		Bundle:           r.Bundle,
		Attempt:          r.Attempt.Number,
		SubmissionName:   string(r.SubmissionName),
		Submission:       p.Submission(r),
		Command:          r.Run.Command,
		RunDir:           p.Layout.RunDir(r.Bundle, r.OnDisk),
		WorkingDirDisk:   q.WorkingDirDisk,
		GPUs:             int(res.GPUs),
		MemoryBytes:      res.Memory,
		DiskBytes:        cmp.Or(res.Disk, q.DefaultDisk),
		Seconds:          q.commandLimit(res).Seconds(),
		KillGraceSeconds: max(q.KillGrace, q.signal(res)).Seconds(),
		SignalSeconds:    q.signal(res).Seconds(),
		Network:          res.Network && q.Network != NetworkNever,
		HostNetwork:      res.Network && q.Network == NetworkOfHost,
		NetworkDenied:    res.Network && q.Network == NetworkNever,
		MaxProcesses:     q.MaxProcesses,
		ShmBytes:         q.ShmBytes,
		Scratch:          q.Scratch,
		Runtime:          q.Runtime,
		Environment:      q.Environment,
		Binds:            q.Binds,
		Secrets:          r.SecretNames(),
		Pack:             r.Pack,
	}
	if r.Resumption.From != "" { // the queue's commands may work on the nodes since
		s.Resumed, s.WorkingDirDisk = true, spool.WorkingDirShared
	}
	if r.Staged != nil {
		s.Inputs = *r.Staged
	}
	return s
}

// givesTime reports whether commands get more time to end after TERM than the worker's default.
func (q Queue) givesTime() bool { return q.KillGrace > 0 || q.Signal > 0 }

// signal returns the time before its time limit at which a command gets TERM; 0 for none. A short run has half of its
// time before that.
func (q Queue) signal(res codalab.Resources) time.Duration {
	return min(q.Signal, q.commandLimit(res)/2)
}

// limit returns the time limit of a request in this queue; 0 for none.
func (q Queue) limit(res codalab.Resources) time.Duration {
	return cmp.Or(seconds(res.Time), q.DefaultTime, q.MaxTime)
}

// signalEarly is the longest time from Slurm's signal to the job's time limit (sbatch(1): --signal, up to
// 60 seconds early), and a margin.
const signalEarly = 2 * time.Minute

// commandLimit returns the worker's time limit for a command. It ends before Slurm signals the worker for
// Slurm's own limit, because a command that was signalled does not fail for its time limit.
func (q Queue) commandLimit(res codalab.Resources) time.Duration {
	limit := q.limit(res)
	if latest := q.MaxTime - signalEarly; q.givesTime() && latest > 0 {
		return min(limit, latest)
	}
	return limit
}

// Shows reports whether the row already holds these observed jobs, so that the bridge need not decide it.
func (r Row) Shows(jobs []sbatch.Job) bool {
	return len(jobs) == 1 && jobs[0] == r.Job && r.ImpossibleSince.IsZero() && r.Job.State != sbatch.StateRevoked &&
		r.NoJobSince.IsZero() == !jobs[0].State.Ended() && (r.Phase == Queued || r.Phase == Running) &&
		(r.Begun == nil || r.Requeued || !r.jobIsBack()) // a later snapshot may prove what an earlier one does not (noteRequeued)
}
