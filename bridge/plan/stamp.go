package plan

import (
	"strconv"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Stamp is what Request wrote into a job's comment.
type Stamp struct {
	Bundle     string
	Attempt    int
	Bridge     string
	Generation int64
}

// StampOf reads a job's stamp. It is false for a comment without one, or with a part of one: a
// site may have rewritten it.
func StampOf(j sbatch.Job) (Stamp, bool) {
	s := Stamp{Bundle: commentValue(j.Comment, "bundle"), Bridge: commentValue(j.Comment, "bridge")}
	var errAttempt, errGeneration error
	s.Attempt, errAttempt = strconv.Atoi(commentValue(j.Comment, "attempt"))
	s.Generation, errGeneration = strconv.ParseInt(commentValue(j.Comment, "generation"), 10, 64)
	return s, s.Bundle != "" && s.Bridge != "" && errAttempt == nil && errGeneration == nil
}
