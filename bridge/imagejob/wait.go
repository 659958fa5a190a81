package imagejob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

const (
	// readEvery is the pause between two readings of a job's files.
	readEvery = 500 * time.Millisecond
	// observePause is the least pause between two snapshots of Slurm.
	observePause = 100 * time.Millisecond
	// settle is the default of Settle.
	settle = 15 * time.Second
	// submitGrace is the longest time for which snapshots may lack a new job.
	submitGrace = time.Minute
)

// waiting waits for the end of one job.
type waiting struct {
	Jobs

	id        sbatch.JobID
	asked     int64 // MiB of memory
	dir       string
	reference string // of the image
	progress  func(Progress)
}

// wait returns when the job has made the SIF, or failed to make it.
func (w *waiting) wait(ctx context.Context) error {
	var g sync.WaitGroup
	defer g.Wait()
	observing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan string, 1)
	g.Go(func() { w.observe(observing, ended) })
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	var state string    // the state in which the job ended, according to Slurm
	var since time.Time // the time at which Slurm first showed that
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			done, err := w.readFiles()
			switch {
			case done:
				return err
			case state == "":
			case err != nil:
				return w.failure(state, err)
			case w.Now().Sub(since) > cmp.Or(w.Settle, settle):
				return w.failure(state, w.unfinished(state))
			}
		case state = <-ended:
			since = w.Now()
		}
	}
}

// observe follows the job in Slurm's snapshots, and sends its final state once. It ignores a snapshot that
// failed.
func (w *waiting) observe(ctx context.Context, ended chan<- string) {
	began := w.Now()
	for ctx.Err() == nil {
		snapshot, err := w.Slurm.Observe(ctx, w.Now())
		if err == nil {
			if state := endState(snapshot, w.id, snapshot.Asked.Sub(began) > submitGrace); state != "" {
				ended <- state
				return
			}
		}
		_ = pause.For(ctx, observePause) // the loop checks ctx
	}
}

// unfinished returns the error for a job that ended in this state without a result.
func (w *waiting) unfinished(state string) error {
	advice := "see squeue and sacct for the reason"
	if state == string(sbatch.StateTimeout) {
		advice = "raise image.time in the bridge's configuration"
	}
	return fmt.Errorf("job %s for the conversion of image %q ended as %s without a result: %s", w.id, w.reference, state, advice)
}

// failure returns the error for an ended job without a SIF: its memory, if that is Slurm's reason, or
// else other.
func (w *waiting) failure(state string, other error) error {
	if state == string(sbatch.StateOutOfMemory) {
		return &memoryError{w.id, w.asked}
	}
	return other
}

// memoryError means that Slurm ended a job for want of memory.
type memoryError struct {
	id    sbatch.JobID
	asked int64 // MiB
}

func (e *memoryError) Error() string {
	return fmt.Sprintf("its conversion needs more than the %s of memory that Slurm job %s requested: raise image.memory in the bridge's configuration",
		codalab.FormatSize(e.asked<<20), e.id)
}

// endState returns the state in which a job ended; empty if it has not. An old job that the snapshot lacks
// ended as UNKNOWN.
func endState(s sbatch.Snapshot, id sbatch.JobID, old bool) string {
	i := slices.IndexFunc(s.Jobs, func(j sbatch.Job) bool { return j.ID == id })
	switch {
	case i < 0 && old:
		return "UNKNOWN"
	case i >= 0 && s.Jobs[i].State.Ended():
		return string(s.Jobs[i].State)
	}
	return ""
}

// readFiles reads the job's files, and reports whether they show the job's end. If they do not, the error
// is a preliminary one from the job, which Slurm's final state may replace.
func (w *waiting) readFiles() (done bool, err error) {
	// An NFS client reads the directory again after it has made and removed an entry.
	probe := filepath.Join(w.dir, ".probe")
	if os.Mkdir(probe, 0o700) == nil {
		_ = os.Remove(probe)
	}
	var r result
	if err := readRecord(w.dir, resultName, &r); err == nil {
		if r.Error != "" {
			return !r.Killed, source.NewImageError(w.reference, errors.New(r.Error), r.Transient)
		}
		// The disk may show the SIF later than the result.
		_, err := os.Stat(filepath.Join(w.dir, sifName))
		return !errors.Is(err, fs.ErrNotExist), nil
	}
	var p Progress
	if w.progress != nil && readRecord(w.dir, progressName, &p) == nil {
		w.progress(p)
	}
	return false, nil
}
