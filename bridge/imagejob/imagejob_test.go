package imagejob_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/imagejob"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// TestMain makes this program the one that the jobs run.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "image" {
		if err := imagejob.Run(context.Background(), os.Args[3], convertPulled); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// puller is a Puller that uses an apptainer.Converter with small default settings.
type puller apptainer.Converter

func (p puller) Pull(ctx context.Context, img source.Image, dir string, progress func(imagejob.Progress)) (source.Image, error) {
	c := apptainer.Converter(p)
	c.Source = imagetest.Source()
	return c.Pull(ctx, img, dir, func(p apptainer.Progress) {
		if progress != nil {
			progress(imagejob.Progress(p))
		}
	})
}

func (p puller) Settings() imagejob.Settings {
	return imagejob.Settings{Level: p.Level, BlockSize: p.BlockSize, Processors: 2, MemoryMiB: cmp.Or(p.MemoryMiB, 128)}
}

func convertPulled(ctx context.Context, s imagejob.Settings, img source.Image, dst string, progress func(imagejob.Progress)) error {
	from := source.Source{OpenFile: source.FilesBelow(img.Reference.Path()), Architecture: img.Architecture}
	c := apptainer.Converter{Source: from, Level: s.Level, BlockSize: s.BlockSize, Processors: s.Processors, MemoryMiB: s.MemoryMiB}
	return c.Convert(ctx, img, dst, func(p apptainer.Progress) { progress(imagejob.Progress(p)) })
}

// newJobs returns jobs that run this program on a cluster with short times.
func newJobs(t *testing.T) imagejob.Jobs {
	t.Helper()
	slurm, self := newSlurm(t)
	return imagejob.Jobs{Slurm: observed(slurm, 50*time.Millisecond), Now: time.Now, Program: sbatch.Program{Path: self}, Settle: 50 * time.Millisecond}
}

// newSlurm returns a cluster with short times, and the path of this program.
func newSlurm(t *testing.T) (*slurmtest.Cluster, string) {
	t.Helper()
	site := slurmtest.NewSite()
	site.StartDelay, site.NameAfter, site.EndAfter = 0, 0, 0
	site.KillWait, site.MinJobAge = 50*time.Millisecond, time.Hour
	k := slurmtest.NewCluster(t, site)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return k, self
}

func observed(slurm sbatch.Scheduler, every time.Duration) *sbatch.Observer {
	return &sbatch.Observer{Scheduler: slurm, Interval: every, Now: time.Now}
}

// push publishes an image of one layer.
func push(t *testing.T, layer v1.Layer) source.Image {
	t.Helper()
	base := imagetest.Image(t, v1.Config{Env: []string{"A=b"}}, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", "1"), imagetest.Hardlink("b", "a"))))
	img, err := mutate.Append(base, mutate.Addendum{Layer: layer})
	if err != nil {
		t.Fatal(err)
	}
	return imagetest.Resolve(t, imagetest.Start(t).Push(t, "lab/image", img))
}

func TestImageThatAJobConvertedIsTheSame(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	jobs := newJobs(t)
	img := push(t, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", "2"))))
	converter := apptainer.Converter{Source: imagetest.Source(), Level: 3, BlockSize: 64 << 10}
	direct, inJob := filepath.Join(t.TempDir(), "x.sif"), filepath.Join(t.TempDir(), "x.sif")
	if err := converter.Convert(t.Context(), img, direct, nil); err != nil {
		t.Fatal(err)
	}
	var last imagejob.Progress
	if err := jobs.Convert(t.Context(), puller(converter), img, inJob, func(p imagejob.Progress) { last = p }); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(direct)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(inJob); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want the same %d; %v", len(got), len(want), err)
	}
	if last.Total == 0 {
		t.Error("no progress was told")
	}
}

func TestImageThatAJobCannotConvertIsRefusedInItsWords(t *testing.T) {
	t.Parallel()
	jobs := newJobs(t)
	img := push(t, static.NewLayer(bytes.Repeat([]byte("no tar"), 1000), types.DockerUncompressedLayer))
	err := jobs.Convert(t.Context(), puller{}, img, filepath.Join(t.TempDir(), "x.sif"), nil)
	var refused *source.ImageError
	if !errors.As(err, &refused) || refused.Transient() || !strings.HasPrefix(err.Error(), fmt.Sprintf("image %q: layer 2 of 2: ", img.Reference)) {
		t.Errorf("%v", err)
	}
}

func TestJobThatLeavesNoResultIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	jobs := newJobs(t)
	jobs.Program.Path = "/bin/false"
	img := push(t, imagetest.GzipLayer(t, imagetest.TarStream(t)))
	err := jobs.Convert(t.Context(), puller{}, img, filepath.Join(t.TempDir(), "x.sif"), nil)
	var refused *source.ImageError
	if err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), "ended as FAILED without a result") {
		t.Errorf("%v", err)
	}
}

func TestJobIsCancelledWhenNobodyWaits(t *testing.T) {
	t.Parallel()
	jobs := newJobs(t)
	forever := filepath.Join(t.TempDir(), "worker")
	testenv.WriteProgram(t, forever, []byte("#!/bin/sh\nexec sleep 1000\n"))
	jobs.Program.Path = forever
	img := push(t, imagetest.GzipLayer(t, imagetest.TarStream(t)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	jobs.Slurm = cancelling{jobs.Slurm, cancel}
	if err := jobs.Convert(ctx, puller{}, img, filepath.Join(t.TempDir(), "x.sif"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	s, err := jobs.Slurm.Observe(t.Context(), time.Now())
	if err != nil || len(s.Jobs) != 1 || s.Jobs[0].State != sbatch.StateCancelled && s.Jobs[0].State != sbatch.StateCompleting {
		t.Errorf("%+v, %v", s.Jobs, err)
	}
}

// killed is a Slurm that ignores cancellations, as after the end of a bridge that was killed.
type killed struct{ imagejob.Slurm }

func (k killed) Cancel(context.Context, string, ...sbatch.JobID) error { return nil }

func TestJobOfABridgeThatWasKilledIsCancelledByTheNext(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	jobs := newJobs(t)
	img := push(t, imagetest.GzipLayer(t, imagetest.TarStream(t)))
	dst := filepath.Join(t.TempDir(), "x.sif")
	forever := filepath.Join(t.TempDir(), "worker")
	testenv.WriteProgram(t, forever, []byte("#!/bin/sh\nexec sleep 1000\n"))
	first := jobs
	first.Program.Path = forever
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first.Slurm = killed{cancelling{jobs.Slurm, cancel}}
	if err := first.Convert(ctx, puller{}, img, dst, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := jobs.Convert(t.Context(), puller{}, img, dst, nil); err != nil {
		t.Fatal(err)
	}
	s, err := jobs.Slurm.Observe(t.Context(), time.Now())
	if err != nil || len(s.Jobs) != 2 {
		t.Fatalf("%+v, %v", s.Jobs, err)
	}
	for _, j := range s.Jobs {
		if j.State == sbatch.StateRunning && j.ID == min(s.Jobs[0].ID, s.Jobs[1].ID) {
			t.Errorf("%+v still runs", j)
		}
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dst), "job-*")); err != nil || len(left) != 1 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// counted is a Slurm that ends a context at the tenth squeue.
type counted struct {
	sbatch.Scheduler

	cancel context.CancelFunc
	asked  *atomic.Int64
}

func (c counted) Observe(ctx context.Context, now time.Time) (sbatch.Snapshot, error) {
	if c.asked.Add(1) == 10 {
		c.cancel()
	}
	return c.Scheduler.Observe(ctx, now)
}

func TestThreeWaitingConversionsAskSlurmAsOftenAsOne(t *testing.T) {
	t.Parallel()
	forever := filepath.Join(t.TempDir(), "worker")
	testenv.WriteProgram(t, forever, []byte("#!/bin/sh\nexec sleep 1000\n"))
	img := push(t, imagetest.GzipLayer(t, imagetest.TarStream(t)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const every = 200 * time.Millisecond
	slurm, _ := newSlurm(t)
	jobs := imagejob.Jobs{Slurm: observed(counted{slurm, cancel, new(atomic.Int64)}, every), Now: time.Now, Program: sbatch.Program{Path: forever}}
	began := time.Now()
	var conversions sync.WaitGroup
	for range 3 {
		dst := filepath.Join(t.TempDir(), "x.sif")
		conversions.Go(func() {
			if err := jobs.Convert(ctx, puller{}, img, dst, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
	conversions.Wait()
	if took := time.Since(began); took < 9*every {
		t.Errorf("squeue was run ten times within %s", took)
	}
}

// Slurm knows more about the end of this job than the job does: its time was over.
func TestJobThatSlurmEndsLeavesNoResult(t *testing.T) {
	t.Parallel()
	jobs := newJobs(t)
	copied := filepath.Join(t.TempDir(), "spec.json")
	script := filepath.Join(t.TempDir(), "worker")
	testenv.WriteProgram(t, script, []byte("#!/bin/sh\ncp \"$3\" '"+copied+"'\nexit 1\n"))
	jobs.Program.Path = script
	dst := filepath.Join(t.TempDir(), "x.sif")
	if err := jobs.Convert(t.Context(), puller{}, push(t, imagetest.GzipLayer(t, imagetest.TarStream(t))), dst, nil); err == nil {
		t.Fatal("the job has failed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := imagejob.Run(ctx, copied, convertPulled); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(copied), "result.json")); err == nil {
		t.Error("there is a result")
	}
}

// cancelling ends a context once a job is running.
type cancelling struct {
	imagejob.Slurm

	cancel context.CancelFunc
}

func (c cancelling) Observe(ctx context.Context, now time.Time) (sbatch.Snapshot, error) {
	s, err := c.Slurm.Observe(ctx, now)
	if err == nil && len(s.Jobs) == 1 && s.Jobs[0].State == sbatch.StateRunning {
		c.cancel()
	}
	return s, err
}
