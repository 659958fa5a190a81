package azurebatch

import (
	"fmt"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// pilotOf returns the pilot of a task. The Since of an ended one is the time of its end.
func pilotOf(t TaskInfo) pilot.Pilot {
	p := pilot.Pilot{Name: t.ID, Job: t.ID, State: t.State, Phase: pilot.Active, Since: t.Created}
	if t.Node != nil {
		p.Node = t.Node.NodeID
	}
	e := t.Execution
	if e == nil {
		e = &Execution{}
	}
	switch t.State {
	case taskActive, taskPreparing:
		p.Phase = pilot.Pending
	case taskCompleted:
		p.Phase, p.Since, p.Reason = pilot.Ended, e.End, e.reason()
		p.Cancelled = e.Failure != nil && e.Failure.Code == endedByUser
		if p.Since.IsZero() {
			p.Since = t.StateTransition
		}
		return p
	default: // an unknown state may run
		if !e.Start.IsZero() {
			p.Since = e.Start
		}
	}
	if e.RequeueCount > 0 {
		p.Reason = "Azure Batch has requeued it " + termtext.Count(e.RequeueCount, "time")
	}
	return p
}

// endedByUser is the code of a task that was terminated ("Job/Task Scheduling Error Codes").
const endedByUser = "TaskEnded"

// reason returns the reason of a task's end, in the service's words.
func (e *Execution) reason() string {
	var parts []string
	if e.ExitCode != nil {
		parts = append(parts, fmt.Sprintf("exit code %d", *e.ExitCode))
	}
	if e.Failure != nil && e.Failure.Code != "FailureExitCode" {
		parts = append(parts, e.Failure.text())
	}
	if e.Container != nil && e.Container.Error != "" {
		parts = append(parts, e.Container.Error)
	}
	return withoutSignature(strings.Join(parts, "; "))
}

// text returns the service's words for a failure.
func (f *Failure) text() string {
	text := strings.TrimSuffix(f.Code+": "+f.Message, ": ")
	for _, d := range f.Details {
		if d.Name == "Message" || d.Name == "Reason" || d.Name == "AdditionalInfo" {
			text = strings.TrimSuffix(text, ".") + ": " + d.Value
		}
	}
	return text
}
