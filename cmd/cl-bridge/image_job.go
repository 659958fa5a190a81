package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/imagejob"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// convert makes a SIF, where that is not the Converter itself.
type convert func(ctx context.Context, c apptainer.Converter, img source.Image, dst string, progress func(apptainer.Progress)) error

// imageJobs has images converted in jobs of image.queue; nil where that is not
// wanted.
func imageJobs(c config.Config, slurm *sbatch.Client, installed programs) convert {
	q := c.Queue[c.Image.Queue]
	if q == nil {
		return nil
	}
	return imagejob.Jobs{
		Slurm:   slurm,
		Program: installed.converter,
		Request: sbatch.Request{
			Comment: "codalab image", Partition: q.Partition, Account: q.Account, QOS: q.QOS, WCKey: q.WCKey,
			Reservation: q.Reservation, Constraint: q.Constraint, Time: c.Image.JobTime(), Extra: q.SbatchOptions,
		},
	}.Convert
}

// imageJobsAlone is imageJobs where no bridge need run.
func imageJobsAlone(ctx context.Context, p program.Process, c config.Config) (convert, error) {
	if c.Image.Queue == "" {
		return nil, nil //nolint:nilnil // none is wanted
	}
	slurm, err := findSlurm(ctx, p, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	installed, err := installPrograms(c, spool.Layout(c.Shared))
	if err != nil {
		return nil, err
	}
	return imageJobs(c, slurm, installed), nil
}

const aboutConvert = `convert converts the one image that SPEC describes, whose layers a bridge has pulled
to the shared disk. It is what a job runs where image.queue is set, and needs
mksquashfs, and no network. How it went is written to result.json beside SPEC.`

// imageConvert is for jobs, and not listed.
func imageConvert() *cobra.Command {
	return &cobra.Command{
		Use: "convert SPEC", Short: "Convert a pulled image, in a job", Long: aboutConvert, Hidden: true,
		Args: program.WrongUsage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			return imagejob.Run(ctx, args[0])
		},
	}
}
