package local

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/procstat"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

const (
	// retryAfter is the pause after a failed write of a record.
	retryAfter = time.Second
	// tidyEvery is the longest pause between two calls of tidy.
	tidyEvery = time.Minute
)

// Run starts jobs when there is room, watches them, ends them and removes their records. It returns
// when ctx ends, and leaves running jobs alone: the next scheduler of the directory takes them
// over. A caller calls it once.
func (s *Scheduler) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, j := range s.running() {
		g.Go(func() error { return s.watch(ctx, j) })
	}
	g.Go(func() error {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			started, trouble := s.startWaiting()
			for _, j := range started {
				g.Go(func() error { return s.watch(ctx, j) })
			}
			trouble = s.tidy() || trouble
			timer.Reset(tidyEvery)
			if trouble {
				timer.Reset(retryAfter)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-s.wake:
			case <-timer.C:
			}
		}
	})
	return g.Wait()
}

// running returns the jobs that have begun and not ended.
func (s *Scheduler) running() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*job
	for _, j := range s.jobs {
		if j.State == sbatch.StateRunning {
			found = append(found, j)
		}
	}
	return found
}

// startWaiting starts jobs in the order of their submission, until one does not fit next to the
// running ones. It returns the jobs that it started, and whether to try again soon.
func (s *Scheduler) startWaiting() (started []*job, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, free := s.ordered(), s.Machine
	for _, j := range all {
		if j.State == sbatch.StateRunning {
			free = free.without(j.record)
		}
	}
	for _, j := range all {
		if j.State != sbatch.StatePending || s.Machine.refusal(j.Request) != "" {
			continue
		}
		if free.refusal(j.Request) != "" {
			break
		}
		next := j.record
		next.CPUs, next.GPUs = free.CPUs[:next.Request.CPUs:next.Request.CPUs], free.GPUs[:next.Request.GPUs:next.Request.GPUs]
		if err := s.start(j, next); err != nil {
			s.Log.Error("cannot start a job", slog.String("job", j.ID.String()), slog.Any("error", err))
			return started, true
		}
		if j.State == sbatch.StateRunning {
			free = free.without(j.record)
			started = append(started, j)
		}
	}
	return started, false
}

// start starts a job with the resources in its next record. A job that cannot be started ends.
// start returns an error if it could not write the record, and then the job still waits.
//
// The process is held until its record is written. A crash before that leaves a waiting job, and a
// process that ends without executing the script.
func (s *Scheduler) start(j *job, next record) error {
	next.Started = s.Now()
	held, err := s.hold(j, &next)
	if err != nil {
		s.Log.Error("cannot start a job", slog.String("job", j.ID.String()), slog.Any("error", err))
		next.State, next.Reason, next.Ended = sbatch.StateFailed, "JobLaunchFailure", next.Started // squeue(1)
		next.CPUs, next.GPUs = nil, nil
		if err := s.records.save(next); err != nil {
			return err
		}
		j.record = next
		return nil
	}
	if err := s.records.save(next); err != nil {
		return errors.Join(err, held.Abandon())
	}
	j.record, j.child = next, held
	if err := held.Release(); err != nil { // the process was killed, which watch notices
		s.Log.Error("cannot release a job's process", slog.String("job", j.ID.String()), slog.Any("error", err))
	}
	return nil
}

// hold starts a job's process, held, and adds it to the job's next record.
func (s *Scheduler) hold(j *job, next *record) (*command.Held, error) {
	script, err := s.records.writeScript(*next)
	if err != nil {
		return nil, err
	}
	bound := next.CPUs
	if s.Machine.Unbound {
		bound = nil
	}
	held, err := command.Detached{
		Args:   append(interpreter(next.Request.Script), script),
		Env:    environment(s.Env, *next, s.Node, j.marker),
		Dir:    next.Request.Dir,
		Output: next.Request.Output,
		CPUs:   bound,
	}.Start()
	if err != nil {
		return nil, err
	}
	main, err := procstat.Read(held.PID())
	if err != nil {
		return nil, errors.Join(err, held.Abandon())
	}
	next.State, next.Process, next.Boot = sbatch.StateRunning, process(main.ID), s.boot
	return held, nil
}

// tidy writes records whose writing failed, and removes those that are no longer shown, except for
// that of the last job. It reports whether to try again soon.
func (s *Scheduler) tidy() (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.ordered() {
		var err error
		switch {
		case j.unsaved:
			err = s.records.save(j.record)
			j.unsaved = err != nil
		case j.ID != s.last && j.expired(s.Now()):
			if err = s.records.remove(j.ID); err == nil {
				delete(s.jobs, j.ID)
			}
		}
		if err != nil {
			s.Log.Error("cannot keep the record of a job", slog.String("job", j.ID.String()), slog.Any("error", err))
			again = true
		}
	}
	return again
}
