package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/pins"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/engineimages"
)

// dockerWithin bounds the question whether Docker answers.
const dockerWithin = 10 * time.Second

// findEngine finds Docker if the runtime is docker or auto. With auto, Docker runs the containers if it
// answers, as with CodaLab's own worker; else the host's best other runtime runs them.
func (w *standalone) findEngine(ctx context.Context) error {
	if w.runtime != runtimeDocker && w.runtime != runtimeAuto {
		return nil
	}
	docker := engineimages.Engine{Program: runner.Look().Docker.Path, Env: engineEnv(w.Process)}
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
	dirs := []string{filepath.Join("/var/tmp", "cl-worker-"+strconv.Itoa(os.Getuid()))}
	if dir := w.Getenv("XDG_STATE_HOME"); dir != "" {
		dirs = append([]string{filepath.Join(dir, "cl-worker")}, dirs...)
	} else if home := w.Getenv("HOME"); home != "" {
		dirs = append([]string{filepath.Join(home, ".local", "state", "cl-worker")}, dirs...)
	}
	var failed error
	for _, dir := range dirs {
		w.engineRecords = filepath.Join(dir, "images-"+w.host+"-"+fileName(address)+".json")
		err := ledger.MakeRoom(w.engineRecords)
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
	if w.engine != nil {
		return nil
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
	host, err := runner.Runner{Env: engineEnv(w.Process)}.Probe(ctx, q.Scratch)
	if err != nil {
		return err
	}
	if _, err := container.Choose(q.Runtime, host); err != nil {
		return program.Usage(fmt.Errorf("containers cannot be run on this host (cl-worker probe): %w", err))
	}
	return nil
}

// engineImages brings images into Docker's own store.
func (w *standalone) engineImages(made assembly.Parts) *engineimages.Images {
	return &engineimages.Images{
		Engine: *w.engine, Source: made.Images.Converter.Source,
		MaxImageBytes: w.maxImage.bytes, MaxStoreBytes: w.maxImages.bytes,
		Remember: made.Images.Remember, AtOnce: made.Images.AtOnce,
		State: w.engineRecords, Home: w.place.own(), Over: holdersOver(w.place.own(), made.Over), Now: w.Now,
	}
}

// judge reports which holders of images are over.
type judge func(ctx context.Context, holders []cache.Holder) (map[cache.Holder]bool, error)

// holdersOver returns a judge for the images of all workers that share one engine. A holder's home is its
// worker's own directory; ours judges the holders of this worker. A holder of another worker is over if that
// worker's directory is gone or has another ledger, because then no worker can resume its runs.
func holdersOver(own string, ours judge) func(ctx context.Context, home string, holders []cache.Holder) (map[cache.Holder]bool, error) {
	return func(ctx context.Context, home string, holders []cache.Holder) (map[cache.Holder]bool, error) {
		if home == own {
			return ours(ctx, holders)
		}
		over := map[cache.Holder]bool{}
		held, err := lease.Read(spool.Layout(home).BridgeDir())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return over, nil // it cannot be judged now
		}
		for _, h := range holders {
			over[h] = err != nil || !strings.HasPrefix(string(h), string(pins.RowHolder(held.Holder.Bridge, "")))
		}
		return over, nil
	}
}

// ports reaches the ports of containers on this host.
type ports struct{ runner runner.Runner }

// Dial is [bridge.Ports]'s.
func (p ports) Dial(ctx context.Context, at spool.Container, port int) (io.ReadWriteCloser, error) {
	running := container.Running{PID: at.PID, Started: at.Started, Name: at.Name, Network: at.Network}
	return p.runner.Dial(ctx, at.Runtime, running, port)
}
