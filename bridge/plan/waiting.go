package plan

import (
	"fmt"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// WaitsForTurn reports whether the row's job is pending behind other jobs.
func (r Row) WaitsForTurn() bool {
	return r.Phase == Queued && !r.Standalone && r.Job.State == sbatch.StatePending &&
		sbatch.Explain(r.Job.Reason).Category == sbatch.WaitsForTurn
}

// pendingStatus says in sentences why the row's job waits, and for how long.
func (r Row) pendingStatus() string {
	job, why := r.Job, sbatch.Explain(r.Job.Reason)
	text := fmt.Sprintf("Slurm job %s waits", job.ID)
	if job.Reason != "" && job.Reason != "None" {
		text += " (" + job.Reason + ")"
	}
	if why.Text != "" {
		text += ": " + why.Text
	}
	sentences := []string{codalab.Sentence(text)}
	if r.Limit.Reason == job.Reason && r.Limit.Sentence != "" {
		sentences = append(sentences, r.Limit.Sentence)
	}
	switch {
	case r.SiteChanges != "":
		sentences = append(sentences, r.siteChanged())
	case why.Action != "":
		sentences = append(sentences, why.Action)
	}
	if r.WaitsForTurn() && r.Turn.Partition != "" {
		sentences = append(sentences, placeSentence(r.Turn))
	}
	if !job.Start.IsZero() {
		sentences = append(sentences, "Slurm expects to start it at "+job.Start.Format("2006-01-02 15:04 MST")+".")
	}
	return strings.Join(sentences, " ")
}

// placeSentence tells the number of jobs ahead.
func placeSentence(t sbatch.Turn) string {
	switch {
	case t.Ahead == 0:
		return "No job is ahead of it in partition " + t.Partition + "."
	case t.Ahead == 1:
		return "1 job is ahead of it in partition " + t.Partition + "."
	case t.Ahead < 100:
		return fmt.Sprintf("%s are ahead of it in partition %s.", termtext.Count(int64(t.Ahead), "job"), t.Partition)
	}
	return fmt.Sprintf("About %d jobs are ahead of it in partition %s.", t.Ahead, t.Partition)
}
