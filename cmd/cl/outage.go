package main

import (
	"errors"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/backoff"
)

// outageLimit limits the wait for a server that does not answer. A laptop that is carried home, or sleeps for a night,
// finds its server again.
const outageLimit = 24 * time.Hour

// The pauses between two questions to a server that does not answer.
const (
	firstRetry = 250 * time.Millisecond
	mostRetry  = 15 * time.Second
)

// saidAfter is the number of failures in a row that are worth a line.
const saidAfter = 3

// outage tells when a command gives a server up. It survives failures that pass, for a while after an answer.
type outage struct {
	answered time.Time
	known    bool // it has answered
	// failures is the number of calls that have failed since the last answer.
	failures int
	said     bool
}

// ends takes the error of a call, nil for an answer, and reports whether the command ends with it.
func (o *outage) ends(err error, now time.Time) bool {
	if err == nil {
		o.answered, o.known, o.failures = now, true, 0
		return false
	}
	o.failures++
	call, ok := errors.AsType[*codalab.Error](err)
	return !o.known || !ok || !call.Transient() || now.Sub(o.answered) > outageLimit
}

// pause is the pause until the next call: regular after an answer.
func (o *outage) pause(regular time.Duration) time.Duration {
	if o.failures == 0 {
		return regular
	}
	return max(regular, backoff.After(o.failures, firstRetry, mostRetry))
}

// say tells once that the server does not answer, and once that it answers again. err is the error of the last call.
func (o *outage) say(c *cli, err error) {
	switch {
	case o.failures == 0 && o.said:
		o.said = false
		c.warn("cl: the server answers again")
	case o.failures >= saidAfter && !o.said:
		o.said = true
		c.warn("cl: %v; cl asks again until it answers", explain(err))
	}
}
