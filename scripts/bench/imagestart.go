package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/apptainerexec"
	"github.com/cl-slurm/cl-slurm/apptainer/container/builtin"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
)

// starts is how often a container is started each way.
const starts = 40

// startFigures measures how long a container lasts whose command does nothing,
// from its request to its end.
func (b *imageBench) startFigures(ctx context.Context) (figures []figure, err error) {
	kept := filepath.Join(b.images, "start")
	if err := makeImage(ctx, recipe{programs: []string{"/bin/true", "/bin/sh"}}, kept); err != nil {
		return nil, err
	}
	image, stop, err := b.serve(ctx, kept)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	sif := filepath.Join(b.dir, "start.sif")
	if out, err := b.command(ctx, b.self, "convert", image, sif, b.temp).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("convert: %w: %s", err, out)
	}
	// The worker's own program is what begins a container on a node.
	cmd := b.command(ctx, b.self, "start", sif, b.dir, filepath.Join(b.dir, "cl-worker"), b.apptainer)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("start containers: %w", err)
	}
	took := map[string][]float64{}
	if err := json.Unmarshal(out, &took); err != nil {
		return nil, fmt.Errorf("start containers: %w", err)
	}
	figures = []figure{
		{name: "images/start_builtin", value: median(took["builtin"]), unit: "ms", against: "bare_squashfuse_bwrap", base: median(took["bare"]), bar: 25, barText: "25"},
		{name: "images/start_shared", value: median(took["shared"]), unit: "ms", against: "start_builtin", base: median(took["builtin"]), barText: "-", atLeast: true},
	}
	// Bare is Apptainer without options, and Apptainer that is told to give what
	// our containers have: a root to write to, and nothing of the host.
	for _, against := range []string{"apptainer_exec", "apptainer_exec_contained"} {
		if len(took[against]) == 0 {
			continue
		}
		base := median(took[against])
		figures = append(figures, figure{
			name: "images/start_apptainer", value: median(took["apptainer"]), unit: "ms", against: against, base: base, bar: 1.05 * base, barText: fmt.Sprintf("1.05x=%.3g", 1.05*base),
		})
	}
	return figures, nil
}

// startPart starts containers each way in turn, and prints how many
// milliseconds each took.
func startPart(ctx context.Context, args []string, out io.Writer) (err error) {
	sif, scratch, worker, program := args[0], args[1], args[2], args[3]
	c := container.Container{SIF: sif, Args: []string{"/bin/true"}, Scratch: scratch, Stderr: os.Stderr}
	run := func(runtime container.Runtime) func() error {
		return func() error {
			exit, err := runtime.Run(ctx, c)
			if err == nil && exit.Code != 0 {
				err = fmt.Errorf("the command ended with %+v", exit)
			}
			return err
		}
	}
	shared, release, err := holdShared(ctx, c, worker)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	shell := func(args ...string) func() error {
		return func() error {
			if said, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", args[0], err, said)
			}
			return nil
		}
	}
	image, err := sifconfig.Read(sif)
	if err != nil {
		return err
	}
	ways := map[string]func() error{
		"builtin": run(builtin.Runtime{Helper: worker}), "shared": run(shared), "bare": shell("sh", "-c", fmt.Sprintf(bareScript, image.Offset, sif, "true", "/dev/null")),
	}
	names := []string{"builtin", "shared", "bare"}
	if program != "" {
		ways["apptainer"] = run(apptainerexec.Runtime{Program: program, Helper: worker})
		ways["apptainer_exec"] = shell(program, "exec", sif, "/bin/true")
		ways["apptainer_exec_contained"] = func() error {
			overlay, err := os.MkdirTemp(scratch, "overlay-")
			if err != nil {
				return fmt.Errorf("make an overlay: %w", err)
			}
			return shell(program, "exec", "--containall", "--no-home", "--overlay", overlay, "--net", "--network", "none", sif, "/bin/true")()
		}
		names = append(names, "apptainer", "apptainer_exec", "apptainer_exec_contained")
	}
	took, err := timeInTurn(names, ways)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(took); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// timeInTurn calls each of the functions in turn, and says how many milliseconds
// each call took.
func timeInTurn(names []string, calls map[string]func() error) (took map[string][]float64, err error) {
	took = map[string][]float64{}
	for round := range starts + 1 {
		for _, name := range names {
			start := time.Now()
			if err := calls[name](); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if round > 0 { // the first finds nothing in memory
				took[name] = append(took[name], float64(time.Since(start).Microseconds())/1000)
			}
		}
	}
	return took, nil
}

// holdShared has a container run in the image until release is called, and
// returns the runtime for others that share its mount.
func holdShared(ctx context.Context, c container.Container, worker string) (runtime builtin.Runtime, release func() error, err error) {
	runtime = builtin.Runtime{Helper: worker, Images: &builtin.Images{}}
	pipe := filepath.Join(c.Scratch, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		return runtime, nil, fmt.Errorf("make a pipe: %w", err)
	}
	c.Args = []string{"/bin/sh", "-c", "read line </pipe"}
	c.Binds = []container.Bind{{Source: pipe, Target: "/pipe"}}
	ended := make(chan error, 1)
	go func() {
		_, err := runtime.Run(ctx, c)
		ended <- err
	}()
	opened := make(chan error, 1)
	var f *os.File
	go func() { // which waits for the command
		var err error
		f, err = os.OpenFile(pipe, os.O_WRONLY, 0)
		opened <- err
	}()
	select {
	case err = <-ended:
		return runtime, nil, fmt.Errorf("hold an image: the container ended: %w", err)
	case err = <-opened:
	}
	return runtime, func() error { return errors.Join(f.Close(), <-ended) }, err
}

// programFiles are programs of this machine and the libraries that their
// linker names.
func programFiles(ctx context.Context, programs []string) ([]file, error) {
	var sources []file
	seen := map[string]bool{}
	add := func(path string) error {
		if seen[path] {
			return nil
		}
		seen[path] = true
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("find a program's files: %w", err)
		}
		sources = append(sources, file{path, info})
		return nil
	}
	for _, program := range programs {
		if err := add(program); err != nil {
			return nil, err
		}
		list, err := exec.CommandContext(ctx, "ldd", program).Output()
		if err != nil {
			return nil, fmt.Errorf("find the libraries of %s: %w", program, err)
		}
		for word := range strings.FieldsSeq(string(list)) {
			if !strings.HasPrefix(word, "/") {
				continue
			}
			if err := add(word); err != nil {
				return nil, err
			}
		}
	}
	return sources, nil
}
