// Package submission shows how a bundle is submitted, and submits nothing (cl-bridge plan): the command with its
// options, the batch script, and when Slurm would start the job by its present plan.
package submission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Submission is a submission of a bundle.
type Submission struct {
	Bundle string `json:"bundle,omitempty"`
	Queue  string `json:"queue"`
	// Job is the job of the submission, if Slurm has it already; 0 if it is the next one.
	Job sbatch.JobID `json:"job,omitempty"`
	// Command is the command line that the bridge runs, and Script the standard input that it gives it.
	Command []string `json:"command"`
	Script  string   `json:"script"`
	// Refusal is the reason for which the bridge or Slurm refuses it; empty if they do not.
	Refusal string `json:"refusal,omitempty"`
	// Limits are sentences about those limits of Slurm's QOS and associations that bound the number of jobs or their
	// resources together, with their use if Slurm tells it.
	Limits []string `json:"limits,omitempty"`
	// Full says that Slurm takes no more of such jobs until some end; empty if it does.
	Full string `json:"full,omitempty"`
	// Shares says with how many others the bundle may share one job; empty if it goes alone, or its job is known.
	Shares string `json:"shares,omitempty"`
	// Expected is the start by Slurm's present plan, with its time and place; nil if Slurm does not say, or has the job.
	Expected *sbatch.Expected `json:"expected,omitempty"`
}

// Slurm answers about jobs. *sbatch.Client documents the methods.
type Slurm interface {
	CommandLine(r sbatch.Request) []string
	Expect(ctx context.Context, r sbatch.Request) (*sbatch.Expected, error)
}

// Of returns the submission of a row: that of its current attempt if Slurm may have its job, else that of the next
// one. shared is the submission that the row shares with others; nil for none. generation is the last that the ledger has given; limits
// may be nil. An error means that Slurm did not answer; the submission is
// valid then, but for that.
func Of(ctx context.Context, slurm Slurm, p plan.Policy, limits plan.Limits, r plan.Row, shared *plan.Submission, generation int64, now time.Time) (Submission, error) {
	shares := ""
	if !r.InFlight() {
		shares = mayShare(p, r)
		if r.Staged == nil {
			r.Staged = &spool.Inputs{}
		}
		r = p.NewAttempt(now, r, generation+1)
	}
	request := p.Request(r)
	if shared != nil && len(shared.Members) > 0 {
		request = p.SharedRequest(shared, r)
	}
	s := Submission{Bundle: r.Bundle, Queue: r.Queue, Job: r.Job.ID, Command: slurm.CommandLine(request), Script: request.Script, Refusal: p.Refusal(r), Shares: shares}
	s.applyLimits(limits, p, request, r)
	if s.Refusal != "" || s.Job != 0 {
		return s, nil
	}
	var err error
	s.Expected, err = slurm.Expect(ctx, request)
	switch refused, ok := errors.AsType[*sbatch.Error](err); {
	case !ok || !refused.Refused:
	case !refused.Retry:
		s.Refusal, err = "Slurm refuses it: "+codalab.Sentence(refused.Message), nil
	case sbatch.SaysFull(refused.Message):
		s.Full, err = "Slurm takes it when others have ended: "+codalab.Sentence(refused.Message), nil
	}
	return s, err
}

// mayShare says with how many others a bundle may share one job.
func mayShare(p plan.Policy, r plan.Row) string {
	if !p.Packs(&r) || !p.MayShare(&r) {
		return ""
	}
	q := p.Queues[r.Queue]
	return fmt.Sprintf("This is its job if it goes alone. With others of its owner that wait and ask for the same it goes in a pack: one job for up to %d runs, %d at a time, "+
		"that asks for the resources of so many and for at most %s.", p.MostTogether(&r), q.PackSideBySide, codalab.SpellDuration(q.PackTime))
}

// applyLimits notes the limits on the job, and whether it is above one of them by itself: Slurm may take such a job, and
// never start it.
func (s *Submission) applyLimits(limits plan.Limits, p plan.Policy, request sbatch.Request, r plan.Row) {
	kind := p.JobKind(&r)
	for _, l := range limits[kind] {
		if l.Kind.OnSubmissions() || l.Kind.OnRunning() || l.Kind.OnShared() {
			s.Limits = append(s.Limits, plan.LimitSentence(l))
		}
	}
	ceiling, _ := limits.Ceiling([]plan.JobKind{kind})
	asked := sbatch.NodeResources{CPUs: request.CPUs, Memory: request.MemoryMiB << 20, GPUs: request.GPUs}
	if request.GPUType != "" {
		asked.GPUTypes = map[string]int64{request.GPUType: request.GPUs}
	}
	if above := ceiling.Exceeds(asked, request.Time); len(above) > 0 && s.Refusal == "" && s.Job == 0 {
		s.Refusal = "It could never start: " + strings.Join(above, " ")
	}
}

// Text returns a submission for people. unanswered is the error of asking Slurm; nil if it answered.
func (s Submission) Text(unanswered error) string {
	what := "Such a run"
	if s.Bundle != "" {
		what = "Bundle " + s.Bundle
	}
	verb := " would go"
	if s.Job != 0 {
		verb = " went"
	}
	said := fmt.Sprintf("%s%s to queue %s:\n\n%s\n\nScript, on standard input:\n%s\n", what, verb, s.Queue, shellLine(s.Command), s.Script)
	switch {
	case s.Job != 0:
		said += fmt.Sprintf("It is job %s.\n", s.Job)
	case s.Refusal != "":
		said += termtext.Line(s.Refusal) + "\n"
	case s.Full != "":
		said += termtext.Line(s.Full) + "\n"
	case unanswered != nil:
		said += "Slurm does not say when it would start it.\n"
	case s.Expected != nil:
		said += "Slurm would start it at " + termtext.Clock(s.Expected.Start) + " on " + termtext.Line(s.Expected.Nodes) + ", by its present plan.\n"
	default:
		said += "Slurm takes it, and does not say when it would start.\n"
	}
	if s.Shares != "" {
		said += s.Shares + "\n"
	}
	for _, limit := range s.Limits {
		said += termtext.Line(limit) + "\n"
	}
	return said + "Nothing was submitted.\n"
}

// shellLine spells a command as a shell reads it, with one option on each line.
func shellLine(args []string) string {
	words := slices.Clone(args)
	for i, word := range words {
		if strings.ContainsFunc(word, special) || word == "" {
			words[i] = sbatch.Quote(word)
		}
	}
	return strings.Join(words, " \\\n  ")
}

// special reports whether a shell may read a character in another way than as itself.
func special(r rune) bool {
	plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_=./:,+@%", r)
	return !plain
}
