package plan

import "time"

// Asking is the state of asking Slurm for a job or an array by one name, until it is known whether there is one.
type Asking struct {
	// SbatchCount counts the decisions to run sbatch.
	SbatchCount int `json:"sbatch_count,omitempty"`
	// UnclearCount counts the unclear answers of sbatch.
	UnclearCount int `json:"unclear_count,omitempty"`
	// RepeatRefusal is Slurm's refusal of a repeated submission. An earlier submission may still have made
	// a job.
	RepeatRefusal string `json:"repeat_refusal,omitempty"`
	// AbsentAsOf is the request time of the snapshot that proves, as far as squeue can, that the submission
	// made no job; zero without such a snapshot.
	AbsentAsOf time.Time `json:"absent_as_of,omitzero"`
}

// begin notes a new start of sbatch.
func (a *Asking) begin() {
	a.AbsentAsOf = time.Time{}
	a.SbatchCount++
}

// absence is the degree to which it is proven that a submission made no live job.
type absence int

const (
	// notAbsent: no snapshot lacks the job yet that is late enough.
	notAbsent absence = iota
	// absentFromQueue: the accounting database has to lack the job too.
	absentFromQueue
	// unprovable: there is no accounting database, and Slurm may have forgotten an ended job.
	unprovable
	// absent: it is proven.
	absent
)

// absence weighs the newest evidence, of which none shows a job of the submission. A complete snapshot must lack the job;
// the bridge must have requested it later than the longest life of an sbatch after its start. The accounting database
// must lack the job too. Without a database the snapshot is enough while Slurm still shows ended jobs.
func (p *Policy) absence(a *Asking, submitted time.Time, queue, accounting *Observation) absence {
	if queue != nil && a.AbsentAsOf.IsZero() && queue.Asked.After(submitted.Add(p.SubmitGrace)) {
		a.AbsentAsOf = queue.Asked
	}
	switch {
	case a.AbsentAsOf.IsZero():
		return notAbsent
	case accounting != nil && !accounting.Asked.Before(a.AbsentAsOf):
		return absent
	case p.Accounting:
		return absentFromQueue
	case a.AbsentAsOf.Before(submitted.Add(p.RecordAge)):
		return absent
	}
	return unprovable
}
