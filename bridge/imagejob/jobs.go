package imagejob

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Slurm runs the jobs. *sbatch.Observer implements it. Observe waits for a snapshot that was requested at
// after or later, so that all conversions that wait share the bridge's squeue.
type Slurm interface {
	Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error)
	Observe(ctx context.Context, after time.Time) (sbatch.Snapshot, error)
	Cancel(ctx context.Context, name string, ids ...sbatch.JobID) error
}

// Puller brings images to the shared disk, for jobs to convert.
type Puller interface {
	// Pull brings an image into dir as an OCI layout, and returns the image there.
	Pull(ctx context.Context, img source.Image, dir string, progress func(Progress)) (source.Image, error)
	// Settings returns the job's settings for the conversion. Processors and MemoryMiB are not zero:
	// the job requests them from Slurm.
	Settings() Settings
}

// Jobs converts images in jobs. It is safe for concurrent use; its fields do not change after the first
// use.
type Jobs struct {
	Slurm Slurm
	// Request is the part of the request that all jobs share: partition, account, time and so on. Jobs
	// adds names, memory, CPUs and script.
	Request sbatch.Request
	// MemoryMiB is the memory that a job requests in addition to the memory that the Settings give to the
	// writer of the file system. If Slurm ends the job for want of memory, the next job requests the next
	// of these amounts. Empty means a gibibyte, and then four.
	MemoryMiB []int64
	// Program is a program, on the shared disk, that calls Run with the last of its arguments
	// after "image convert".
	Program sbatch.Program
	// Now reads the clock of Slurm's snapshots.
	Now func() time.Time
	// Settle is the longest time until the shared disk shows the files of an ended job; 0 means fifteen
	// seconds.
	Settle time.Duration
}

// Convert pulls the image and writes it in a job as a SIF at dst. The directory of dst has to be the
// caller's alone and on the shared disk. Convert blocks until the job has ended; when ctx ends earlier,
// it cancels the job.
//
// An error of the image or its conversion is an *source.ImageError. Any other error is Slurm's, or the
// shared disk's.
func (j Jobs) Convert(ctx context.Context, p Puller, img source.Image, dst string, progress func(Progress)) error {
	dir := filepath.Dir(dst)
	pulled, err := p.Pull(ctx, img, filepath.Join(dir, "layout"), progress)
	if err != nil {
		return err
	}
	var short *memoryError
	for _, extraMiB := range j.memories() {
		err = j.convertWith(ctx, p.Settings(), img, pulled, dst, extraMiB, progress)
		var sbatchErr *sbatch.Error
		if short != nil && errors.As(err, &sbatchErr) && !sbatchErr.Transient() {
			return source.NewImageError(img.Reference.String(), fmt.Errorf("%w; Slurm refused a job with more memory: %w", short, sbatchErr), false)
		}
		if !errors.As(err, &short) {
			return err
		}
	}
	return source.NewImageError(img.Reference.String(), short, false)
}

// memories returns MemoryMiB, or its default. The index takes up to three quarters of a kilobyte for a
// file, and mksquashfs 4.5 not much less: 2.7 GB, measured, for 1.9 million files. Images with more than
// two million files are refused.
func (j Jobs) memories() []int64 {
	if len(j.MemoryMiB) == 0 {
		return []int64{1024, 4096}
	}
	return j.MemoryMiB
}

// convertWith converts the pulled image in one job, with extraMiB of memory in addition to the writer's.
func (j Jobs) convertWith(ctx context.Context, s Settings, img, pulled source.Image, dst string, extraMiB int64, progress func(Progress)) error {
	dir := filepath.Dir(dst)
	if err := j.cancelEarlier(ctx, dir); err != nil {
		return fmt.Errorf("convert in a job: %w", err)
	}
	work, err := os.MkdirTemp(dir, workPrefix)
	if err != nil {
		return fmt.Errorf("convert in a job: %w", err)
	}
	if err := writeRecord(work, specName, newSpec(s, img, pulled)); err != nil {
		return fmt.Errorf("convert in a job: %w", err)
	}
	request := j.request(s, img, work)
	request.MemoryMiB += extraMiB
	id, err := j.Slurm.Submit(ctx, request)
	if err != nil { // Slurm may still have made a job; its result is ignored
		return fmt.Errorf("convert in a job: %w", err)
	}
	_ = writeRecord(work, jobName, submitted{id, request.Name}) // only a later cancelEarlier reads it
	w := waiting{Jobs: j, id: id, dir: work, asked: request.MemoryMiB, reference: img.Reference.String(), progress: progress}
	if err := w.wait(ctx); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, j.cancel(ctx, id, request.Name))
		}
		return err
	}
	if err := os.Rename(filepath.Join(work, sifName), dst); err != nil {
		return fmt.Errorf("take the SIF from job %s: %w", id, err)
	}
	return nil
}

// workPrefix begins the names of jobs' directories.
const workPrefix = "job-"

// cancelEarlier cancels jobs of earlier calls in dir, and removes their files.
func (j Jobs) cancelEarlier(ctx context.Context, dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, workPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for earlier jobs: %w", err)
	}
	for _, work := range left {
		var job submitted
		if readRecord(work, jobName, &job) == nil && readRecord(work, resultName, &result{}) != nil {
			_ = j.cancel(ctx, job.ID, job.Name) // after a failure it runs until its time limit, and its result is ignored
		}
		if err := os.RemoveAll(work); err != nil {
			return fmt.Errorf("remove the files of an earlier job: %w", err)
		}
	}
	return nil
}

// request returns the request for a job with only the writer's memory.
func (j Jobs) request(s Settings, img source.Image, dir string) sbatch.Request {
	r := j.Request
	hex := strings.TrimPrefix(img.Digest, "sha256:")
	r.Name = "cl-image-" + hex[:min(12, len(hex))] + "-" + strings.TrimPrefix(filepath.Base(dir), workPrefix)
	r.CPUs, r.MemoryMiB = int64(s.Processors), int64(s.MemoryMiB)
	r.Dir, r.Output = dir, filepath.Join(dir, outputName)
	r.Script = "#!/bin/sh\n" + j.Program.Exec("image", "convert", sbatch.Quote(filepath.Join(dir, specName)))
	return r
}

func (j Jobs) cancel(ctx context.Context, id sbatch.JobID, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := j.Slurm.Cancel(ctx, name, id); err != nil {
		return fmt.Errorf("convert in a job: %w", err)
	}
	return nil
}
