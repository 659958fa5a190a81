package plan_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// everyRow returns a row in each phase, with the variants that a row may have there.
func everyRow() map[string]plan.Row {
	rows := map[string]plan.Row{}
	for _, p := range plan.Phases() {
		for name, vary := range variants() {
			r := rowIn(p)
			vary(&r)
			rows[string(p)+", "+name] = r
		}
	}
	return rows
}

func variants() map[string]func(*plan.Row) {
	stop := &plan.Verdict{Cause: spool.CauseUser, Failure: codalab.KillRequested}
	stopped := exit(143)
	stopped.Terminated = true
	return map[string]func(*plan.Row){
		"plain":         func(*plan.Row) {},
		"fresh":         func(r *plan.Row) { r.Staged, r.Prepared, r.SubmittedAt = nil, false, time.Time{} },
		"prepared":      func(r *plan.Row) { r.SubmittedAt, r.Job = time.Time{}, sbatch.Job{} },
		"stopped":       func(r *plan.Row) { r.StopVerdict = stop },
		"jobless":       func(r *plan.Row) { r.Job = sbatch.Job{} },
		"unbegun":       func(r *plan.Row) { r.Begun, r.Exit = nil, nil },
		"fenced":        func(r *plan.Row) { r.Begun, r.Fenced = nil, true },
		"over":          func(r *plan.Row) { r.NoJobSince, r.Job.State = epoch, sbatch.StateNodeFail },
		"gone":          func(r *plan.Row) { r.NoJobSince = epoch },
		"absent":        func(r *plan.Row) { r.AbsentAsOf = epoch },
		"looked":        func(r *plan.Row) { r.NoJobSince, r.RecordsReadAt = epoch, epoch.Add(time.Minute) },
		"terminated":    func(r *plan.Row) { r.Begun, r.Exit = started(), stopped },
		"offered again": func(r *plan.Row) { r.ReofferedAt = epoch.Add(time.Hour) },
		"paused": func(r *plan.Row) {
			r.FailedTries, r.DueAt, r.LastFailure = 9, epoch.Add(2*time.Hour+time.Minute), "no answer"
		},
		"low":         func(r *plan.Row) { r.DiskLow = "the disk is nearly full" },
		"dropped":     func(r *plan.Row) { r.Dropped = true },
		"uncollected": func(r *plan.Row) { r.Uncollected = true },
		"given up":    func(r *plan.Row) { r.GivesUp = true },
		"no room": func(r *plan.Row) {
			r.Room = &plan.RoomWait{HeldResults: spool.HeldResults{Size: "12g in 40 entries", Dir: "/shared/runs/x/1"}, Since: epoch, Until: epoch.Add(time.Hour)}
		},
		"asking": asking,
		"resumed": func(r *plan.Row) {
			asking(r)
			r.Begun, r.Exit, r.Resumption = nil, nil, plan.Resumption{Count: 1, From: "1-b1b2b3", Copied: 1, Why: "Its node failed."}
		},
		"resumed and begun": func(r *plan.Row) {
			asking(r)
			r.Resumption = plan.Resumption{Count: 2, From: "1-b1b2b3", Copied: 2, Why: "Its node failed."}
		},
		"other queue": func(r *plan.Row) { r.Queue = "gone" },
		"releasing":   func(r *plan.Row) { r.Releasing = true },
		"vanished":    func(r *plan.Row) { r.Begun, r.Exit, r.RecordsGoneSince, r.NoJobSince = nil, nil, epoch, epoch },
		"unclear": func(r *plan.Row) {
			r.Job, r.Begun, r.UnclearCount, r.LastFailure, r.AbsentAsOf = sbatch.Job{}, nil, 3, "?", epoch.Add(time.Hour)
		},
		"to come": tomorrow,
		"nothing": func(r *plan.Row) {
			*r = plan.Row{Bundle: uuid, Phase: r.Phase, Attempt: plan.Attempt{Number: 1, SubmissionName: submission}, StopVerdict: r.StopVerdict, Verdict: r.Verdict, Reason: "an old row"}
		},
	}
}

// asking lets a bundle ask to be resumed.
func asking(r *plan.Row) {
	run := *r.Run
	run.Metadata = codalab.Metadata{"tags": []any{"resume=2"}}
	r.Run = &run
}

// timedOut returns the exit record of a command that its worker ended for its time limit.
func timedOut() *spool.Exit {
	e := exit(143)
	e.Cause, e.TimedOut, e.Failure = spool.CauseLimit, true, "Time limit exceeded."
	return e
}

// states lists the states that package sbatch defines.
func states() []sbatch.State {
	return []sbatch.State{
		sbatch.StatePending, sbatch.StateConfiguring, sbatch.StateRunning, sbatch.StateSuspended, sbatch.StateStopped, sbatch.StateCompleting,
		sbatch.StateSignaling, sbatch.StateStageOut, sbatch.StateResizing, sbatch.StateRequeued, sbatch.StateRequeueHold, sbatch.StateRequeueFed,
		sbatch.StateSpecialExit, sbatch.StateResvDelHold, sbatch.StateCompleted, sbatch.StateFailed, sbatch.StateCancelled, sbatch.StateTimeout,
		sbatch.StateDeadline, sbatch.StateOutOfMemory, sbatch.StateNodeFail, sbatch.StateBootFail, sbatch.StatePreempted, sbatch.StateRevoked,
	}
}

// tomorrow returns a row from before the clock was set back.
func tomorrow(r *plan.Row) {
	at := epoch.Add(24 * time.Hour)
	for _, t := range []*time.Time{&r.PhaseSince, &r.ReofferedAt, &r.KeepUntil, &r.SubmittedAt, &r.AbsentAsOf, &r.NoJobSince, &r.RecordsReadAt, &r.ImpossibleSince, &r.CancelledAt, &r.RecordsGoneSince} {
		*t = at
	}
	r.DueAt = at.Add(time.Hour)
}

// everyNews returns each kind of news, alone.
func everyNews() map[string]plan.News {
	news := map[string]plan.News{"nothing": {}, "progress": {Progress: "half"}, "changed data": {DataChanged: "The data changed."}, "a remark": {Remark: "a write was lost"}, "a restart": {Restarted: true}}
	for attempt, name := range map[int]string{1: "a found job", 2: "a found job of a later attempt"} {
		stamp := plan.Stamp{Bundle: uuid, Attempt: attempt, Bridge: "b1b2b3", Generation: 9}
		news[name] = plan.News{Found: &plan.Found{Stamp: stamp, Job: job(sbatch.StatePending)}}
	}
	for _, m := range []codalab.Message{kill, ack, offered(), {Type: codalab.MessageRead}, {Type: codalab.MessageRun}, {Type: "dance"}} {
		news["message "+string(m.Type)] = told(m)
	}
	for _, state := range append(states(), "HIBERNATING", "") {
		news["observation "+string(state)] = seen(2*time.Hour, job(state))
		news["accounting "+string(state)] = accounted(2*time.Hour, job(state))
	}
	impossible := job(sbatch.StatePending)
	impossible.Reason = "BadConstraints"
	news["observation impossible"] = seen(2*time.Hour, impossible)
	foreignJob, noted, former := job(sbatch.StateRunning), job(sbatch.StateRunning), job(sbatch.StateRunning)
	foreignJob.Comment = "codalab bundle=0xfeed attempt=1 owner=1 bridge=b1b2b3 generation=1"
	noted.Comment = "codalab bundle=" + uuid + " attempt=1 owner=1 bridge=b1b2b3 generation=1"
	former.Comment = "codalab bundle=" + uuid + " attempt=1 owner=1 bridge=b1b2b3 generation=0"
	for name, jobs := range map[string][]sbatch.Job{
		"none": nil, "ghost": {ghostJob()}, "two": {job(sbatch.StateCancelled), job(sbatch.StateRunning)},
		"another bundle's": {foreignJob}, "a noted one": {noted}, "both": {foreignJob, noted},
		"a former life": {former},
	} {
		news["observation of "+name] = seen(2*time.Hour, jobs...)
		news["early observation of "+name] = seen(time.Second, jobs...)
		news["accounting of "+name] = accounted(2*time.Hour, jobs...)
	}
	news["accounting away"] = plan.News{AccountingFailure: "connection refused"}
	stopped := exit(143)
	stopped.Terminated = true
	foreign := exit(0)
	foreign.Token = "token-2"
	for name, n := range map[string]plan.News{
		"none": read(2*time.Hour, nil, nil), "start": read(2*time.Hour, started(), nil), "end": read(2*time.Hour, started(), exit(0)),
		"late end": read(2*time.Hour, started(), timedOut()),
		"failure":  read(2*time.Hour, started(), exit(3)), "termination": read(2*time.Hour, started(), stopped),
		"end without start": read(2*time.Hour, nil, exit(0)), "foreign end": read(2*time.Hour, started(), foreign),
		"fencing": read(2*time.Hour, &spool.Started{Fenced: true}, nil), "another attempt": {Records: &plan.Records{Attempt: 7, Records: spool.Records{Started: started(), Exit: exit(0)}}},
		"half": {Records: &plan.Records{Attempt: 1, Records: spool.Records{Started: started()}}, RecordsFailure: "permission denied"},
	} {
		news["records of "+name] = n
	}
	news["look failed"] = plan.News{RecordsFailure: "stale file handle"}
	for name, o := range map[string]plan.Outcome{
		"done": {}, "failed": {Failure: "no"}, "failed for good": {Failure: "no", Final: true}, "gone": {Failure: "no", Final: true, Gone: true},
		"given up": {Held: &spool.HeldResults{Size: "12g in 40 entries", Dir: "/shared/runs/x/1", Output: true}},
		"held":     {Failure: "no", Held: &spool.HeldResults{Size: "12g in 40 entries", Dir: "/shared/runs/x/1"}},
	} {
		news["claim "+name] = plan.News{Claimed: &plan.Claimed{Outcome: o, Accepted: true}}
		news["claim not accepted "+name] = plan.News{Claimed: &plan.Claimed{Outcome: o}}
		news["staging "+name] = plan.News{Staged: &plan.StageEnd{Outcome: o, Inputs: spool.Inputs{SIF: "/x.sif"}}}
		news["copy "+name] = plan.News{Carried: &o}
		news["preparation "+name] = plan.News{Prepared: &o}
		news["cancellation "+name] = plan.News{Cancelled: &o}
		news["collection "+name] = plan.News{Collected: &o}
		news["release "+name] = plan.News{Released: &o}
		news["confirmation "+name] = plan.News{Confirmed: &plan.Confirmation{Outcome: o, Asked: epoch.Add(2 * time.Hour), State: codalab.StateFinalizing}}
	}
	for _, state := range []codalab.State{
		codalab.StateStaged, codalab.StateStarting, codalab.StatePreparing, codalab.StateRunning, codalab.StateWorkerOffline,
		codalab.StateReady, codalab.StateFailed, codalab.StateKilled, "dormant", "",
	} {
		news["confirmation of "+string(state)] = plan.News{Confirmed: &plan.Confirmation{Asked: epoch.Add(2 * time.Hour), State: state}}
		news["confirmation of "+string(state)+" here"] = plan.News{Confirmed: &plan.Confirmation{Asked: epoch.Add(2 * time.Hour), State: state, Here: true}}
		news["confirmation of "+string(state)+" lost"] = plan.News{Confirmed: &plan.Confirmation{Asked: epoch.Add(2 * time.Hour), State: state, UploadFailure: "Upload failed: no"}}
		news["old confirmation of "+string(state)] = plan.News{Confirmed: &plan.Confirmation{Asked: epoch.Add(-time.Second), State: state}}
	}
	news["an unanswered check-in"] = plan.News{Unanswered: true}
	news["the worker gives back"], news["the worker leaves"] = plan.News{GiveBack: true}, plan.News{GiveBack: true, Leave: true}
	news["staged again"] = plan.News{Restaged: true}
	for name, s := range map[string]plan.SbatchAnswer{
		"a job": {Job: 7}, "refusal": {Refused: true, Words: "no"}, "refusal of the site's": {Refused: true, OfSite: true, Words: "no"}, "refusal of the queue": {Refused: true, OfSite: true, OfQueue: true, Words: "no"}, "refusal for now": {Refused: true, Retry: true, Words: "busy"}, "nonsense": {Words: "?"},
	} {
		news["submission: "+name] = answered(s)
		s.Attempt = 7
		news["another attempt's submission: "+name] = plan.News{Submitted: &s}
	}
	news["the queue takes jobs"], news["the queue takes none"], news["no answer about the queue"] = plan.News{Canary: &plan.Canary{}}, plan.News{Canary: &plan.Canary{Refusal: "no"}}, plan.News{Canary: &plan.Canary{Failure: "no answer"}}
	news["claim too large"] = plan.News{Claimed: &plan.Claimed{Accepted: true, Refusal: "no"}}
	launch := job(sbatch.StateCancelled)
	launch.CancelledBy = "0"
	news["accounting of a failed launch"] = accounted(2*time.Hour, launch)
	low, room := "the disk is nearly full", ""
	news["low"], news["room"] = plan.News{DiskLow: &low}, plan.News{DiskLow: &room}
	news["staging, no room"] = plan.News{Staged: &plan.StageEnd{Outcome: plan.Outcome{Failure: "no space left on device", Full: true}}}
	news["fenced"] = fencing(spool.Started{Fenced: true})
	news["not fenced"] = fencing(*started())
	news["fencing failed"] = plan.News{Fenced: &plan.Fencing{Attempt: 1, Failure: "no space left on device"}}
	news["nothing to fence"] = plan.News{Fenced: &plan.Fencing{Attempt: 1, Failure: "no such directory", Gone: true}}
	news["another attempt's fencing"] = plan.News{Fenced: &plan.Fencing{Attempt: 7, Started: spool.Started{Fenced: true}}}
	return news
}

// both returns two pieces of news that came together.
func both(a, b plan.News) plan.News {
	return plan.News{
		Restarted:         a.Restarted || b.Restarted,
		Found:             cmp.Or(b.Found, a.Found),
		DiskLow:           cmp.Or(b.DiskLow, a.DiskLow),
		Unanswered:        a.Unanswered || b.Unanswered,
		GiveBack:          a.GiveBack || b.GiveBack,
		Leave:             a.Leave || b.Leave,
		Restaged:          a.Restaged || b.Restaged,
		Messages:          slices.Concat(a.Messages, b.Messages),
		Observation:       cmp.Or(b.Observation, a.Observation),
		Accounting:        cmp.Or(b.Accounting, a.Accounting),
		AccountingFailure: a.AccountingFailure + b.AccountingFailure,
		Records:           cmp.Or(b.Records, a.Records),
		RecordsFailure:    a.RecordsFailure + b.RecordsFailure,
		Claimed:           cmp.Or(b.Claimed, a.Claimed),
		Staged:            cmp.Or(b.Staged, a.Staged),
		Prepared:          cmp.Or(b.Prepared, a.Prepared),
		Submitted:         cmp.Or(b.Submitted, a.Submitted),
		Canary:            cmp.Or(b.Canary, a.Canary),
		Fenced:            cmp.Or(b.Fenced, a.Fenced),
		Cancelled:         cmp.Or(b.Cancelled, a.Cancelled),
		Collected:         cmp.Or(b.Collected, a.Collected),
		Confirmed:         cmp.Or(b.Confirmed, a.Confirmed),
		Released:          cmp.Or(b.Released, a.Released),
		Progress:          a.Progress + b.Progress,
		DataChanged:       a.DataChanged + b.DataChanged,
		Remark:            a.Remark + b.Remark,
	}
}
