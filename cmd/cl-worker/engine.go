package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/pods"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/container/walls"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/pins"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/workdir"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/onnode"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/engineimages"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// dockerWithin bounds the question whether Docker answers.
const dockerWithin = 10 * time.Second

// findEngine finds Docker if the runtime is docker or auto. With auto, Docker runs the containers if it
// answers, as with CodaLab's own worker; else the host's best other runtime runs them.
func (w *standalone) findEngine(ctx context.Context) error {
	if w.runtime != runtimeDocker && w.runtime != runtimeAuto {
		return nil
	}
	docker := engineimages.Engine{Program: runner.Look().Docker.Path, Env: onnode.EngineEnv(w.Process)}
	lack := runner.Look().Docker.Lack
	if lack == "" {
		ctx, cancel := context.WithTimeout(ctx, dockerWithin)
		defer cancel()
		switch err := docker.Answers(ctx); {
		case err != nil && ctx.Err() != nil:
			lack = fmt.Sprintf("Docker had not answered after %s", dockerWithin)
		case err != nil:
			lack = err.Error()
		}
	}
	switch {
	case lack == "":
		w.engine, w.runtime = &docker, runtimeDocker
		return w.findEngineRecords(ctx)
	case w.runtime == runtimeDocker:
		return fmt.Errorf("--bundle-runtime docker: %s", lack)
	default:
		w.log.InfoContext(ctx, "Docker is not used", slog.String("reason", lack))
	}
	return nil
}

// findEngineRecords finds the file about the images in Docker's store. All workers of this user on this host
// that use this Docker share the file, whatever their work directories are. It is on a disk of this host, in
// the directory of the user's state, else below /var/tmp.
func (w *standalone) findEngineRecords(ctx context.Context) error {
	address, err := w.engine.Address(ctx)
	if err != nil { // an old client
		address = cmp.Or(w.Getenv("DOCKER_HOST"), "default")
	}
	var failed error
	for _, dir := range workdir.StateDirs(w.Getenv) {
		w.engineRecords = filepath.Join(dir, "images-"+w.host+"-"+workdir.FileName(address)+".json")
		err := ledger.MakeDir(w.engineRecords)
		if err == nil {
			return nil
		}
		failed = errors.Join(failed, err)
	}
	return fmt.Errorf("find a place for the records of Docker's images: %w", failed)
}

// tryHost fails if this host cannot run containers or convert images: a worker there would claim runs that
// only other workers can run.
func (w *standalone) tryHost(ctx context.Context) error {
	if w.pods != nil {
		return w.tryPods(ctx)
	}
	if w.engine != nil {
		return w.tellWalls(ctx)
	}
	if err := (apptainer.Converter{}).Ready(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return program.Usage(fmt.Errorf("images cannot be converted on this host: %w", err))
	}
	if w.runtime == runtimeSlurm {
		return nil
	}
	q := w.config.Queue[queueName]
	host, err := runner.Runner{Env: onnode.EngineEnv(w.Process)}.Probe(ctx, q.Scratch, q.Runtime)
	if err != nil {
		return err
	}
	choice, err := container.Choose(q.Runtime, host)
	if err != nil {
		return program.Usage(fmt.Errorf("containers cannot be run on this host (cl-worker probe): %w", err))
	}
	w.logWeaker(ctx, choice, host)
	if w.network == plan.NetworkByRequest && host.Forwarder.Lack != "" {
		w.log.WarnContext(ctx, "runs that request a network get none (see --bundle-network)", slog.String("reason", host.Forwarder.Lack))
	}
	return nil
}

// tellWalls logs the weaker walls of Docker. A host that cannot be probed runs containers by Docker all the same.
func (w *standalone) tellWalls(ctx context.Context) error {
	host, err := runner.Runner{Env: onnode.EngineEnv(w.Process)}.Probe(ctx, w.config.Queue[queueName].Scratch, runtimes.Docker)
	if err != nil {
		return ctx.Err()
	}
	w.logWeaker(ctx, container.Choice{Runtime: runtimes.Docker}, host)
	return nil
}

// logWeaker logs the weaker walls of this host's runtime.
func (w *standalone) logWeaker(ctx context.Context, choice container.Choice, host container.Host) {
	report := probe.Report{Choice: &choice, Weaker: walls.Weaker(choice, host)}
	if sentence := report.WeakerSentence(); sentence != "" {
		w.log.InfoContext(ctx, "walls around commands are weaker here (docs/security.md)", slog.String("reason", sentence))
	}
}

// engineImages brings images into Docker's own store.
func (w *standalone) engineImages(made assembly.Parts) *engineimages.Images {
	return &engineimages.Images{
		Engine: *w.engine, Source: made.Images.Converter.Source,
		MaxImageBytes: w.maxImage.bytes, MaxStoreBytes: w.maxImages.bytes,
		Remember: made.Images.Remember, AtOnce: made.Images.AtOnce,
		RecordsPath: w.engineRecords, Home: w.dirs.Own(), Over: pins.HomesOver(w.dirs.Own(), made.Over), Now: w.Now,
	}
}

// ports reaches the ports of containers on this host.
type ports struct {
	runner runner.Runner
	pods   *pods.Settings // nil if no container is a pod
}

// Dial is [bridge.Ports]'s.
func (p ports) Dial(ctx context.Context, at spool.Container, port int) (io.ReadWriteCloser, error) {
	if at.Runtime == runtimes.Kubernetes && p.pods != nil {
		return p.pods.Dial(ctx, at.Name, port)
	}
	running := container.Running{PID: at.PID, Started: at.Started, Name: at.Name, Network: at.Network}
	return p.runner.Dial(ctx, at.Runtime, running, port)
}
