package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/imagejob"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// convertPulled converts an image that assembly.ImageJobs has pulled. It runs inside a
// job.
func convertPulled(ctx context.Context, s imagejob.Settings, img source.Image, dst string, progress func(imagejob.Progress)) error {
	return apptainer.Converter{
		Source:      source.Source{OpenFile: source.FilesBelow(img.Reference.Path()), Architecture: img.Architecture},
		Compression: s.Compression, Level: s.Level, BlockSize: s.BlockSize, Processors: s.Processors, MemoryMiB: s.MemoryMiB,
		MaxBytes: s.MaxBytes, MaxEntries: s.MaxEntries,
	}.Convert(ctx, img, dst, func(p apptainer.Progress) { progress(imagejob.Progress(p)) })
}

// observeAlone is the interval of squeue calls in a command that waits for a job.
const observeAlone = 30 * time.Second

// imageJobsAlone returns assembly.ImageJobs for a command, which has no bridge's observer.
func imageJobsAlone(ctx context.Context, p program.Process, c config.Config) (assembly.Convert, error) {
	if c.Image.Queue == "" {
		return nil, nil
	}
	slurm, err := findSlurm(ctx, p, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if open := sharedfiles.CheckOwn(c); len(open) > 0 {
		return nil, program.Usage(open[0])
	}
	installed, err := sharedfiles.InstallPrograms(c, spool.Layout(c.Shared))
	if err != nil {
		return nil, err
	}
	return assembly.ImageJobs(c, &sbatch.Observer{Scheduler: slurm, Interval: observeAlone, Now: p.Now}, installed), nil
}

const aboutConvert = `convert converts the one image that SPEC describes. A bridge has pulled its layers to the
shared disk before. Jobs run this command if image.queue is set. It needs mksquashfs
and no network, and writes its result to result.json in SPEC's directory.`

// imageConvert is for jobs; the help does not list it.
func imageConvert() *cobra.Command {
	return &cobra.Command{
		Use: "convert SPEC", Short: "Convert a pulled image, in a job", Long: aboutConvert, Hidden: true,
		Args: program.WrongUsage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			return imagejob.Run(ctx, args[0], convertPulled)
		},
	}
}
