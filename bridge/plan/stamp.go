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
	s.Identity = commentValue(j.Comment, "identity")
	var errAttempt, errGeneration error
	s.Attempt, errAttempt = strconv.Atoi(commentValue(j.Comment, "attempt"))
	s.Generation, errGeneration = strconv.ParseInt(commentValue(j.Comment, "generation"), 10, 64)
	s.OnDisk = spool.AttemptName(cmp.Or(commentValue(j.Comment, "dir"), string(spool.NameAttempt(s.Attempt, s.Bridge))))
	return s, s.Bundle != "" && s.Bridge != "" && errAttempt == nil && errGeneration == nil
}
