package probe

import "github.com/cl-slurm/cl-slurm/internal/checklist"

// Check is the result for one thing that runs need.
type Check = checklist.Check

// Verdict is the result of a check.
type Verdict = checklist.Verdict

// The verdicts. A first job runs in spite of warnings.
const (
	OK      = checklist.OK
	Warning = checklist.Warning
	Failed  = checklist.Failed
)

// Passed returns a check without a fault.
func Passed(name, format string, args ...any) Check { return checklist.Passed(name, format, args...) }

// Fault returns a check with a fault.
func Fault(v Verdict, name, found, means, do string) Check {
	return checklist.Fault(v, name, found, means, do)
}
