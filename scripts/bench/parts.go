package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/klauspost/compress/gzip"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/apptainerexec"
	"github.com/cl-slurm/cl-slurm/apptainer/container/builtin"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/outbound"
)

// playPart runs a part of an area: convert IMAGE SIF TEMP, floor IMAGE blobs|diffids, start SIF SCRATCH
// WORKER APPTAINER, syscalls SIF SCRATCH WORKER ARCHIVE, core-bridge DIRECTORY IMAGES SERVER, core-squeue
// DIRECTORY OPTIONS, core-day DIRECTORY IMAGES IMAGE ENDED LIVED, server-files DIRECTORY, or slurm-bridge DIRECTORY
// IMAGES SERVER CONF.
func playPart(ctx context.Context, part string, args []string) {
	switch {
	case part == "convert" && len(args) == 3:
		img := must(localRegistries().Resolve(ctx, must(source.ParseReference(args[0]))))
		check(apptainer.Converter{Source: localRegistries(), TempDir: args[2]}.Convert(ctx, img, args[1], nil))
	case part == "floor" && len(args) == 2:
		readImage(ctx, args[0], args[1] == "diffids")
	case part == "start" && len(args) == 4:
		startContainers(ctx, args[0], args[1], args[2], args[3])
	case part == "syscalls" && len(args) == 4:
		unpackArchives(ctx, args[0], args[1], args[2], args[3])
	case part == "core-bridge" && len(args) == 3:
		runCoreBridge(ctx, args[0], args[1], args[2])
	case part == "core-squeue" && len(args) > 1:
		runSqueue(args[0], args[1:])
	case part == "core-day" && len(args) == 5:
		runCoreDay(args[0], args[1], args[2], must(strconv.Atoi(args[3])), must(strconv.Atoi(args[4])))
	case part == "server-files" && len(args) == 1:
		serveFiles(ctx, args[0])
	case part == "slurm-bridge" && len(args) == 4:
		runSlurmBridge(ctx, args[0], args[1], args[2], args[3])
	default:
		check(fmt.Errorf("no such part with %d arguments", len(args)))
	}
}

// readImage reads an image as every reader has to: the registry's client checks the
// layers' digests, three layers at a time, and the library that a conversion uses
// unzips them. With diffIDs it takes the digests of the unpacked layers, too.
func readImage(ctx context.Context, image string, diffIDs bool) {
	img := must(remote.Image(must(name.ParseReference(image)), remote.WithContext(ctx)))
	var group errgroup.Group
	group.SetLimit(3)
	for _, l := range must(img.Layers()) {
		group.Go(func() error { return attempt(func() { readLayer(l, diffIDs) }) })
	}
	check(group.Wait())
}

// localRegistries returns a source of images in registries of this machine.
func localRegistries() source.Source {
	return source.Source{Private: outbound.Places{Hosts: []string{"127.0.0.1"}}}
}

func readLayer(l v1.Layer, diffIDs bool) {
	blob := must(l.Compressed())
	defer func() { _ = blob.Close() }() // only read
	buffered := bufio.NewReaderSize(blob, 256<<10)
	to := io.Discard
	if diffIDs {
		to = sha256.New()
	}
	must(io.Copy(to, must(gzip.NewReader(buffered))))
	if must(io.Copy(io.Discard, buffered)) > 0 {
		check(errors.New("read a layer: more than one stream"))
	}
}

// Each runtime starts a container this many times.
const starts = 40

// benchStart measures a container with a command that does nothing, from its
// request to its end.
func (b *imageBench) benchStart(ctx context.Context) {
	kept := filepath.Join(b.images, "start")
	image, stop := serveImage(ctx, layoutBlobs{kept}, "start", makeImage(ctx, recipe{programs: []string{"/bin/true", "/bin/sh"}}, kept))
	defer stop()
	sif := filepath.Join(b.dir, "start.sif")
	output(b.command(ctx, b.self, "convert", image, sif, b.temp))
	// As on a node, the worker's own program is the first process of a container.
	cmd := b.command(ctx, b.self, "start", sif, b.dir, filepath.Join(b.dir, "cl-worker"), b.apptainer)
	cmd.Stderr = os.Stderr
	took := map[string][]float64{}
	check(json.Unmarshal(must(cmd.Output()), &took))
	figure{name: "images/start_builtin", value: median(took["builtin"]), unit: "ms", against: "bare_squashfuse_bwrap", base: median(took["bare"]), bar: 25}.print()
	for _, against := range []string{"apptainer_exec", "apptainer_exec_contained"} {
		if len(took[against]) > 0 {
			base := median(took[against])
			figure{name: "images/start_apptainer", value: median(took["apptainer"]), unit: "ms", against: against, base: base, bar: 1.05 * base, barText: fmt.Sprintf("1.05x=%.3g", 1.05*base)}.print()
		}
	}
}

// startContainers starts containers by each runtime in turn, and prints the duration of each in
// milliseconds. apptainer is empty if there is none.
func startContainers(ctx context.Context, sif, scratch, worker, apptainer string) {
	c := container.Container{SIF: sif, Args: []string{"/bin/true"}, PrivateDir: scratch, Stderr: os.Stderr}
	type starter struct {
		name  string
		start func()
	}
	run := func(r container.Runtime) func() {
		return func() {
			if exit := must(r.Run(ctx, c)); exit.Code != 0 {
				check(fmt.Errorf("the command ended with %+v", exit))
			}
		}
	}
	bare := fmt.Sprintf(bareScript, must(sifconfig.Read(sif)).Offset, sif, "true", "/dev/null")
	starters := []starter{
		{"builtin", run(builtin.Runtime{Helper: worker})},
		{"bare", func() { program(ctx, "sh", "-c", bare) }},
	}
	if apptainer != "" {
		// Apptainer runs once without options, and once with options that give our containers' features:
		// a writable root, and nothing of the host.
		starters = append(starters,
			starter{"apptainer", run(apptainerexec.Runtime{Program: apptainer, Helper: worker})},
			starter{"apptainer_exec", func() { program(ctx, apptainer, "exec", sif, "/bin/true") }},
			starter{"apptainer_exec_contained", func() {
				overlay := must(os.MkdirTemp(scratch, "overlay-"))
				program(ctx, apptainer, "exec", "--containall", "--no-home", "--overlay", overlay, "--net", "--network", "none", sif, "/bin/true")
			}})
	}
	took := map[string][]float64{}
	for round := range starts + 1 {
		for _, r := range starters {
			if lasted := seconds(r.start); round > 0 { // the first reads from the disk
				took[r.name] = append(took[r.name], lasted*1000)
			}
		}
	}
	check(json.NewEncoder(os.Stdout).Encode(took))
}
