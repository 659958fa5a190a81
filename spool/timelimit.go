package spool

import (
	"errors"
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// TimeLimit is the record of a change of a job's time limit in Slurm. An administrator may lengthen or shorten it while
// the job runs. The worker sees no Slurm, and learns of the change from this record.
type TimeLimit struct {
	Format int `json:"format"`
	// FirstSeconds is the limit that the job was submitted with or, without one, got at its start. Seconds is the present one.
	FirstSeconds float64 `json:"first_seconds"`
	Seconds      float64 `json:"seconds"`
}

// NewTimeLimit returns the record of a change between two limits.
func NewTimeLimit(first, now time.Duration) TimeLimit {
	return TimeLimit{FirstSeconds: first.Seconds(), Seconds: now.Seconds()}
}

func (l TimeLimit) check() error {
	if err := checkFormat(l.Format); err != nil {
		return err
	}
	if !(l.FirstSeconds > 0) || !(l.Seconds > 0) {
		return errors.New("a time limit is missing")
	}
	return nil
}

// WriteTimeLimit publishes the job's time limit. It replaces an earlier record.
func (a Attempt) WriteTimeLimit(l TimeLimit) error {
	l.Format = Format
	return atomicfile.WriteJSON(a.path(timeLimitName), l)
}

// ReadTimeLimit reads the job's time limit; ErrNone if it has not changed.
func (a Attempt) ReadTimeLimit() (TimeLimit, error) {
	return readRecord[TimeLimit](a.path(timeLimitName))
}

// TellTimeLimit tells the worker of an attempt that the time limit of its job has changed. A repetition is harmless.
func (d Disk) TellTimeLimit(bundle string, name AttemptName, l TimeLimit) error {
	if err := d.Layout.Attempt(bundle, name).WriteTimeLimit(l); err != nil {
		return fmt.Errorf("write the time limit of attempt %s of %s: %w", name, bundle, err)
	}
	return nil
}
