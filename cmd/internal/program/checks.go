package program

import "github.com/cl-slurm/cl-slurm/internal/checklist"

// ChecksError returns the error of a command that has printed checks: without a text, and with an exit code that tells
// whether a later try may go well. It is nil if no check failed.
func ChecksError(checks []checklist.Check) error {
	switch failed, allUnreachable := checklist.HasFailed(checks); {
	case allUnreachable:
		return &Error{Code: ExitTransient}
	case failed:
		return &Error{Code: ExitFailure}
	}
	return nil
}
