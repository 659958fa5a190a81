package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/spool"
)

// Kind is a kind of effect.
type Kind string

// The kinds of effects. The scenarios in testdata and the traces of package trace record these texts, so a changed
// text makes older ones differ.
const (
	// Claim tells the server that the bridge takes the bundle (start_bundle).
	Claim Kind = "claim"
	// Stage brings the image and the dependencies to the shared disk.
	Stage Kind = "stage"
	// Carry copies the files of a bundle that is resumed into the run directory of its next attempt. It removes those of
	// other earlier attempts.
	Carry Kind = "carry"
	// Prepare writes the job's specification to the shared disk.
	Prepare Kind = "prepare"
	// Submit runs sbatch. It is the only effect that may not be repeated at will.
	Submit Kind = "submit"
	// AskQueue asks Slurm whether it takes the smallest job of the row's queue (package canary). One question is for all members of a
	// pack.
	AskQueue Kind = "canary"
	// QueryAccounting asks the accounting database for the row's submission. One sacct asks for
	// many rows.
	QueryAccounting Kind = "account"
	// ReadRecords reads the current attempt's records.
	ReadRecords Kind = "look"
	// Fence takes the current attempt's started, so that no worker can begin it.
	Fence Kind = "close"
	// TellTimeLimit tells the attempt's worker that the job's time limit has changed.
	TellTimeLimit Kind = "limit"
	// Cancel ends the row's job. One scancel ends the jobs of many rows.
	Cancel Kind = "cancel"
	// StopMember tells the worker of a pack to end the attempt.
	StopMember Kind = "stop"
	// JoinPack writes a slot of the list of a pack that runs, so that rows join it. Only a Submission wants it.
	JoinPack Kind = "join"
	// Collect sends the results to the server.
	Collect Kind = "collect"
	// Confirm asks the server for the bundle's state and worker, and for results and
	// an end that the server may have lost.
	Confirm Kind = "confirm"
	// Release removes the bundle's files from the shared disk.
	Release Kind = "release"
	// Forget removes the row from the ledger.
	Forget Kind = "forget"
)

// Kinds lists the kinds of effects.
func Kinds() []Kind {
	return []Kind{Claim, Stage, Carry, Prepare, Submit, AskQueue, QueryAccounting, ReadRecords, Fence, TellTimeLimit, Cancel, StopMember, JoinPack, Collect, Confirm, Release, Forget}
}

// Effect is one action outside the ledger, done after Row was saved. At most one effect of a kind runs at
// a time for an attempt of a bundle.
type Effect struct {
	Kind Kind
	// Row is the row as saved with the decision. It must not be changed.
	Row *Row
	// Submission is the shared submission that Submit submits, or whose slot JoinPack writes, with Row for one of its members; nil for the row's own.
	Submission *Submission
	// More has the further rows that the same command of Slurm serves. Next sets none.
	More []*Row
	// Measured are the results that Collect collects, once they were measured for its place. Next sets none.
	Measured spool.MeasuredResults
}

// Rows returns all rows of the effect.
func (e Effect) Rows() []*Row { return append([]*Row{e.Row}, e.More...) }

// KindsOf returns the effects' kinds, in their order.
func KindsOf(effects []Effect) []Kind {
	var kinds []Kind
	for _, e := range effects {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// Decision is one call of Next with its result. A trace consists of decisions: the same Policy makes each
// of them again.
type Decision struct {
	Now  time.Time `json:"now"`
	Row  Row       `json:"row"`
	News News      `json:"news"`
	// Next, and the kinds in Effects, are the results of Policy.Next.
	Next    Row    `json:"next"`
	Effects []Kind `json:"effects,omitempty"`
}
