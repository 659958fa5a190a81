package local

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// watch follows a running job until the job or ctx ends.
func (s *Scheduler) watch(ctx context.Context, j *job) error {
	s.mu.Lock()
	begun := j.record
	s.mu.Unlock()
	main := begun.Process
	inSession := j.child != nil || main.alive()
	gone := make(chan struct{})
	var g errgroup.Group
	g.Go(func() error {
		defer close(gone)
		main.await(ctx)
		return nil
	})
	s.enforce(j, begun, gone)
	if err := g.Wait(); err != nil || ctx.Err() != nil {
		return err
	}
	s.mu.Lock()
	j.ending = true
	s.mu.Unlock()
	if s.killOthers(ctx, begun, j.marker, inSession) {
		s.end(j)
	}
	return nil
}

// enforce ends the main process of a job when its time is up or when it is cancelled. It returns
// when the main process is gone or has got KILL.
func (s *Scheduler) enforce(j *job, begun record, gone <-chan struct{}) {
	var limit, kill <-chan time.Time
	if begun.Request.Time > 0 {
		timer := time.NewTimer(begun.Started.Add(begun.Request.Time).Sub(s.Now()))
		defer timer.Stop()
		limit = timer.C
	}
	endNow := j.endNow
	for {
		select {
		case <-gone:
			return
		case <-limit:
			s.endAtLimit(j)
		case <-endNow:
			endNow, limit = nil, nil
			s.signal(begun, unix.SIGTERM)
			timer := time.NewTimer(s.KillWait)
			defer timer.Stop()
			kill = timer.C
		case <-kill:
			s.signal(begun, unix.SIGKILL)
			return // watch ends the others when it is gone
		}
	}
}

// endAtLimit begins to end a job whose time is up.
func (s *Scheduler) endAtLimit(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.EndState != "" {
		return
	}
	j.EndState = sbatch.StateTimeout
	s.saveLater(j)
	close(j.endNow)
}

// saveLater saves the record of a job. If the disk refuses it, tidy tries again.
func (s *Scheduler) saveLater(j *job) {
	if err := s.records.save(j.record); err != nil {
		s.Log.Error("cannot keep the record of a job", slog.String("job", j.ID.String()), slog.Any("error", err))
		j.unsaved = true
	}
}

// signal sends a signal to a job's main process.
func (s *Scheduler) signal(begun record, sig unix.Signal) {
	if err := begun.Process.signal(sig); err != nil {
		s.Log.Error("cannot end a job", slog.String("job", begun.ID.String()), slog.Any("error", err))
	}
}

// The pauses between two rounds of killOthers: a killed process may take a while to end.
const (
	firstKillPause   = 5 * time.Millisecond
	longestKillPause = time.Second
)

// killOthers ends the processes of a job except for its main one, and waits until they are gone. It
// returns false if ctx ends first.
func (s *Scheduler) killOthers(ctx context.Context, begun record, marker string, inSession bool) bool {
	main := begun.Process
	for round := 1; ; round++ {
		others, err := main.others(marker, inSession)
		if err == nil && len(others) == 0 {
			return true
		}
		for _, p := range others {
			if killed := p.signal(unix.SIGKILL); killed != nil {
				err = killed
			}
		}
		if err != nil {
			s.Log.ErrorContext(ctx, "cannot end the processes of a job", slog.String("job", begun.ID.String()), slog.Any("error", err))
		}
		if backoff.Wait(ctx, round, firstKillPause, longestKillPause) != nil {
			return false
		}
	}
}

// end ends a job that has no processes any more, and frees its resources.
func (s *Scheduler) end(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.State, j.Reason, j.Ended, j.ending = sbatch.StateFailed, "", s.Now(), false
	if j.child != nil {
		exited, err := j.child.Wait()
		if err != nil {
			s.Log.Error("cannot read a job's exit status", slog.String("job", j.ID.String()), slog.Any("error", err))
		} else {
			j.Exit = fmt.Sprintf("%d:%d", exited.Code, exited.Signal)
		}
	}
	switch {
	case j.EndState == sbatch.StateTimeout:
		j.State, j.Reason = j.EndState, "TimeLimit"
	case j.EndState != "":
		j.State = j.EndState
	case j.Exit == sbatch.ExitedWell:
		j.State = sbatch.StateCompleted
	case j.Exit != "":
		j.Reason = "NonZeroExitCode" // squeue(1): JOB REASON CODES
	}
	s.saveLater(j)
	s.wakeRun()
}
