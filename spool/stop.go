package spool

// StopAttempt is a placeholder until the worker's side is merged.
func (d Disk) StopAttempt(bundle string, name AttemptName) error { return nil }
