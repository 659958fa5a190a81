package plan

import (
	"cmp"
	"strconv"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Stamp is the content of the comment that Request wrote into a job.
type Stamp struct {
	Bundle     string
	Attempt    int
	Bridge     string
	Generation int64
	// OnDisk names the attempt on the shared disk.
	OnDisk spool.AttemptName
	// Identity is the digest of the bundle's identity; empty if the comment was cut short.
	Identity string
}

// StampOf reads a job's stamp. It returns false if the comment has none, or only a part of one: a site may
// have rewritten it.
func StampOf(j sbatch.Job) (Stamp, bool) {
	s := Stamp{Bundle: commentValue(j.Comment, "bundle"), Bridge: commentValue(j.Comment, "bridge")}
	if s.Bundle == "" || s.Bridge == "" { // a foreign job, or one that rows share
		return s, false
	}
	s.Identity = commentValue(j.Comment, "identity")
	var errAttempt, errGeneration error
	s.Attempt, errAttempt = strconv.Atoi(commentValue(j.Comment, "attempt"))
	s.Generation, errGeneration = strconv.ParseInt(commentValue(j.Comment, "generation"), 10, 64)
	s.OnDisk = spool.AttemptName(cmp.Or(commentValue(j.Comment, "dir"), string(spool.NameAttempt(s.Attempt, s.Bridge))))
	return s, errAttempt == nil && errGeneration == nil
}

// SharedStamp is the content of the comment that SharedRequest wrote into the jobs of an array, or into that of a pack.
type SharedStamp struct {
	Bridge     string
	Generation int64
	// Members is the number of the members, and Pack is set if they share one job.
	Members int
	Pack    bool
}

// Submission returns the text that tells the submission from all others (Policy.Submission).
func (s SharedStamp) Submission() string { return submissionID(s.Bridge, s.Generation) }

// Of returns the stamp of a member's attempt, as a job of its own would have it.
func (s SharedStamp) Of(m spool.Member) Stamp {
	return Stamp{Bundle: m.Bundle, Attempt: m.Name.Number(), Bridge: s.Bridge, Generation: s.Generation, OnDisk: m.Name, Identity: m.Identity}
}

// SharedStampOf reads the stamp of a task of an array, or of a pack. It returns false if the comment has none.
func SharedStampOf(j sbatch.Job) (SharedStamp, bool) {
	var s SharedStamp
	members := commentValue(j.Comment, "tasks")
	if members == "" {
		members, s.Pack = commentValue(j.Comment, "pack"), true
	}
	if members == "" { // a foreign job, or a job of one row
		return SharedStamp{}, false
	}
	s.Bridge = commentValue(j.Comment, "bridge")
	var errTasks, errGeneration error
	s.Members, errTasks = strconv.Atoi(members)
	s.Generation, errGeneration = strconv.ParseInt(commentValue(j.Comment, "generation"), 10, 64)
	return s, s.Bridge != "" && errTasks == nil && errGeneration == nil
}
