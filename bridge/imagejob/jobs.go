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

// Slurm runs the jobs. *sbatch.Observer is one. Observe waits for a snapshot that was asked
// for at after or later, so that all conversions that wait share the bridge's squeue.
type Slurm interface {
	Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error)
	Observe(ctx context.Context, after time.Time) (sbatch.Snapshot, error)
	Cancel(ctx context.Context, name string, ids ...sbatch.JobID) error
}

// Puller brings images to the shared disk, for jobs to convert.
type Puller interface {
	// Pull brings an image into dir as an OCI layout, and returns it as it is there.
	Pull(ctx context.Context, img source.Image, dir string, progress func(Progress)) (source.Image, error)
	// Settings say how a job converts the image. Processors and MemoryMiB, which
	// the job asks Slurm for, are not zero.
	Settings() Settings
}

// Jobs converts images by jobs. It is safe for concurrent use; its fields are
// not changed once it is used.
type Jobs struct {
	Slurm Slurm
	// Request is what every job asks for: partition, account, time and so on.
	// Names, memory, CPUs and script are added to it.
	Request sbatch.Request
	// MemoryMiB is what a job asks for beside the memory that the Settings give to the
	// writer of the file system. Where Slurm ends it for want of memory the next of
	// these is asked for; none means a gibibyte, and then four.
	MemoryMiB []int64
	// Program is the path, on the shared disk, of a program that calls Run with the
	// last of its arguments after "image convert".
	Program string
	// Now reads the clock of Slurm's snapshots.
	Now func() time.Time
	// Settle is how long the shared disk may take to show what an ended job has
	// written; 0 means fifteen seconds.
	Settle time.Duration
}

// Convert pulls the image and has a job write it as a SIF at dst, whose directory
// has to be the caller's own and on the shared disk. It blocks until the job has
// ended; when ctx ends before, the job is cancelled.
//
// An error of the image or its conversion is an *source.ImageError. Any other
// is Slurm's, or the shared disk's.
func (j Jobs) Convert(ctx context.Context, p Puller, img source.Image, dst string, progress func(Progress)) error {
	dir := filepath.Dir(dst)
	pulled, err := p.Pull(ctx, img, filepath.Join(dir, "layout"), progress)
	if err != nil {
		return err
	}
	var short *memoryError
	for _, beside := range j.memories() {
		err = j.convertWith(ctx, p.Settings(), img, pulled, dst, beside, progress)
		var answer *sbatch.Error
		if short != nil && errors.As(err, &answer) && !answer.Transient() {
			return source.NewImageError(img.Reference.String(), fmt.Errorf("%w; and of more: %w", short, answer), false)
		}
		if !errors.As(err, &short) {
			return err
		}
	}
	return source.NewImageError(img.Reference.String(), short, false)
}

// memories is MemoryMiB with its default. The index takes up to three quarters of a
// kilobyte for a file, and mksquashfs 4.5 not much less: 2.7 GB, measured, for 1.9
// million files, and images with more than two million are refused.
func (j Jobs) memories() []int64 {
	if len(j.MemoryMiB) == 0 {
		return []int64{1024, 4096}
	}
	return j.MemoryMiB
}

// convertWith converts the pulled image in one job, with this memory beside the writer's.
func (j Jobs) convertWith(ctx context.Context, s Settings, img, pulled source.Image, dst string, beside int64, progress func(Progress)) error {
	dir := filepath.Dir(dst)
	if err := j.clear(ctx, dir); err != nil {
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
	request.MemoryMiB += beside
	id, err := j.Slurm.Submit(ctx, request)
	if err != nil { // if a job was made all the same, its result is ignored
		return fmt.Errorf("convert in a job: %w", err)
	}
	_ = writeRecord(work, jobName, submitted{id, request.Name}) // it helps a later clear, and is not needed
	w := waiting{Jobs: j, id: id, dir: work, asked: request.MemoryMiB, image: img.Reference.String(), progress: progress}
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

// clear cancels jobs of earlier calls in dir, and removes their files.
func (j Jobs) clear(ctx context.Context, dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, workPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for earlier jobs: %w", err)
	}
	for _, work := range left {
		var job submitted
		if readRecord(work, jobName, &job) == nil && readRecord(work, resultName, &result{}) != nil {
			_ = j.cancel(ctx, job.ID, job.Name) // it reaches its time limit, and its result is ignored
		}
		if err := os.RemoveAll(work); err != nil {
			return fmt.Errorf("remove the files of an earlier job: %w", err)
		}
	}
	return nil
}

// request is the job's, with the memory of the writer alone.
func (j Jobs) request(s Settings, img source.Image, dir string) sbatch.Request {
	r := j.Request
	hex := strings.TrimPrefix(img.Digest, "sha256:")
	r.Name = "cl-image-" + hex[:min(12, len(hex))] + "-" + strings.TrimPrefix(filepath.Base(dir), workPrefix)
	r.CPUs, r.MemoryMiB = int64(s.Processors), int64(s.MemoryMiB)
	r.Dir, r.Output = dir, filepath.Join(dir, outputName)
	r.Script = fmt.Sprintf("#!/bin/sh\nexec %s image convert %s\n", sbatch.Quote(j.Program), sbatch.Quote(filepath.Join(dir, specName)))
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
