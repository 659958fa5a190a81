package imagejob_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/imagejob"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
	"github.com/cl-slurm/cl-slurm/staging/images"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// unreachable passes calls to its Scheduler, and fails them while down is set.
type unreachable struct {
	sbatch.Scheduler

	down *atomic.Bool
}

const noContact = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"

func (u unreachable) Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error) {
	if u.down.Load() {
		return 0, slurmtest.SubmitError(r.Name, noContact, 1)
	}
	return u.Scheduler.Submit(ctx, r)
}

func (u unreachable) Observe(ctx context.Context, now time.Time) (sbatch.Snapshot, error) {
	if u.down.Load() {
		return sbatch.Snapshot{}, &sbatch.Error{Op: "observe", Message: "Unable to contact slurm controller"}
	}
	return u.Scheduler.Observe(ctx, now)
}

// With image.queue set, a bundle that is being staged waits for its conversion's job. An outage of Slurm must
// not use up the patience with the bundle's own failures.
func TestStagingBundlesWaitWhileSlurmIsUnreachable(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	slurm, self := newSlurm(t)
	var down atomic.Bool
	down.Store(true)
	watched := observed(unreachable{slurm, &down}, 10*time.Millisecond)
	jobs := imagejob.Jobs{Slurm: watched, Now: time.Now, Program: sbatch.Program{Path: self}, Settle: 50 * time.Millisecond}
	content, err := cache.Open(t.TempDir(), cache.Options{Settle: -1})
	if err != nil {
		t.Fatal(err)
	}
	im := &images.Images{
		Cache: content, Kept: images.Records(filepath.Join(t.TempDir(), "kept")), References: images.References{Dir: filepath.Join(t.TempDir(), "names")},
		Converter: apptainer.Converter{Source: imagetest.Source()}, Remember: time.Minute, AtOnce: 2, Now: time.Now,
		Convert: func(ctx context.Context, c apptainer.Converter, img source.Image, dst string, _ func(apptainer.Progress)) error {
			return jobs.Convert(ctx, puller(c), img, dst, nil)
		},
	}
	image := imagetest.Start(t).Push(t, "lab/image", imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", "1")))))
	stage := func() error {
		_, err := im.Stage(t.Context(), codalab.RunBundle{UUID: "0x1a2b3c4d5e6f708192a3b4c5d6e7f809"}, image, "", "", &transfer.Item{})
		return err
	}
	mustWait := func(when, words string) {
		t.Helper()
		err := stage()
		var failed interface {
			Transient() bool
			Outage() bool
		}
		if !errors.As(err, &failed) || !failed.Transient() || !failed.Outage() || !strings.Contains(err.Error(), words) {
			t.Errorf("%s, staging failed with %v; want an outage: %q", when, err, words)
		}
	}
	mustWait("when sbatch meets the outage first", "Unable to contact slurm controller")
	if _, err := watched.Observe(t.Context(), time.Now()); err == nil {
		t.Fatal("squeue was answered")
	}
	mustWait("when squeue has met it", "has not answered since")
	down.Store(false)
	for _, err := watched.Observe(t.Context(), time.Now()); err != nil; {
		_, err = watched.Observe(t.Context(), time.Now())
	}
	if err := stage(); err != nil {
		t.Errorf("when Slurm answers again: %v", err)
	}
}
