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
	// readEvery is how often the files of a job are read.
	readEvery = 500 * time.Millisecond
	// observePause is the least pause between two snapshots of Slurm.
	observePause = 100 * time.Millisecond
	// settle is the default of Settle.
	settle = 15 * time.Second
	// submitGrace is how long a new job may be missing in what Slurm shows.
	submitGrace = time.Minute
)

// waiting waits for the end of one job.
type waiting struct {
	Jobs

	id       sbatch.JobID
	asked    int64 // MiB of memory
	dir      string
	image    string
	progress func(Progress)
}

// wait returns when the job has made the SIF, or failed to.
func (w *waiting) wait(ctx context.Context) error {
	var g sync.WaitGroup
	defer g.Wait()
	observing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan string, 1)
	g.Go(func() { w.observe(observing, ended) })
	look := time.NewTicker(readEvery)
	defer look.Stop()
	var gone string     // how the job ended, according to Slurm
	var since time.Time // since when Slurm shows it ended
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			done, err := w.readFiles()
			switch {
			case done:
				return err
			case gone == "":
			case err != nil:
				return w.failure(gone, err)
			case w.Now().Sub(since) > cmp.Or(w.Settle, settle):
				return w.failure(gone, w.unfinished(gone))
			}
		case gone = <-ended:
			since = w.Now()
		}
	}
}

// observe follows the job in Slurm's snapshots, and says once how it ended. A snapshot that
// could not be had is no evidence.
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
		_ = pause.For(ctx, observePause) // the loop looks at ctx
	}
}

// unfinished says how a job ended that left no result.
func (w *waiting) unfinished(gone string) error {
	advice := "squeue and sacct say more of it"
	if gone == string(sbatch.StateTimeout) {
		advice = "a longer image.time in the bridge's configuration gives it more"
	}
	return fmt.Errorf("job %s, which was to convert image %q, ended as %s without a result: %s", w.id, w.image, gone, advice)
}

// failure is why an ended job has no SIF: its memory, if that is Slurm's reason, or else other.
func (w *waiting) failure(gone string, other error) error {
	if gone == string(sbatch.StateOutOfMemory) {
		return &memoryError{w.id, w.asked}
	}
	return other
}

// memoryError says that Slurm ended a job for want of memory.
type memoryError struct {
	id    sbatch.JobID
	asked int64 // MiB
}

func (e *memoryError) Error() string {
	return fmt.Sprintf("its conversion takes more than the %s of memory that Slurm job %s had asked for: a larger image.memory in the bridge's configuration adds to that",
		codalab.FormatSize(e.asked<<20), e.id)
}

// endState says in which state a job ended; empty while it has not. An old job that the
// snapshot lacks ended as UNKNOWN.
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

// readFiles reads what the job has written, and reports whether the job is at its end. If it is
// not, the error is what the job knows of its end, and Slurm may know better.
func (w *waiting) readFiles() (done bool, err error) {
	// After an entry was made and removed, an NFS client reads the directory again.
	probe := filepath.Join(w.dir, ".probe")
	if os.Mkdir(probe, 0o700) == nil {
		_ = os.Remove(probe)
	}
	var r result
	if err := readRecord(w.dir, resultName, &r); err == nil {
		if r.Error != "" {
			return !r.Killed, source.NewImageError(w.image, errors.New(r.Error), r.Transient)
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
