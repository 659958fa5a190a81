package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// benchImages measures the conversion of images that it makes itself, beside
// the least that anyone does who reads them.
func benchImages(ctx context.Context, out io.Writer) (err error) {
	b, err := newImageBench()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, r := range recipes() {
		if only := os.Getenv("IMAGES"); only != "" && only != r.name {
			continue
		}
		if err := b.convert(ctx, out, r); err != nil {
			return fmt.Errorf("image %s: %w", r.name, err)
		}
	}
	return nil
}

// imageBench has what all images share.
type imageBench struct {
	images string // where they are kept, for the next time
	dir    string // of this run
	temp   string // in dir: a file system in memory, for temporary files
	self   string // a copy of this program that anyone may run
	as     *syscall.Credential
}

func newImageBench() (*imageBench, error) {
	b := &imageBench{images: filepath.Join(testsite.Base, "bench-images-"+imagesVersion)}
	if err := os.MkdirAll(b.images, 0o755); err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	var err error
	if b.as, err = researcher(); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp(testsite.Base, "bench-images-run-"); err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	b.temp, b.self = filepath.Join(b.dir, "tmp"), filepath.Join(b.dir, "bench")
	self, err := os.Executable()
	if err == nil {
		err = program(context.Background(), "cp", self, b.self)
	}
	err = errors.Join(err, os.Mkdir(b.temp, 0o700), os.Chmod(b.dir, 0o755), os.Chown(b.dir, int(b.as.Uid), int(b.as.Gid)),
		os.Chmod(b.self, 0o755))
	if err == nil {
		err = syscall.Mount("tmpfs", b.temp, "tmpfs", 0, "size=12g,mode=1777")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare: %w", err), os.RemoveAll(b.dir))
	}
	return b, nil
}

func (b *imageBench) close() error {
	return errors.Join(syscall.Unmount(b.temp, syscall.MNT_DETACH), os.RemoveAll(b.dir))
}

// researcher is the ordinary user who converts images.
func researcher() (*syscall.Credential, error) {
	u, err := user.Lookup("researcher")
	if err != nil {
		return nil, fmt.Errorf("who is researcher: %w", err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 31)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 31)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(uidErr, gidErr)
}

// command is a part of this program, or another program, as researcher.
func (b *imageBench) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = b.dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + b.temp, "TMPDIR=" + b.temp, "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.as}
	return cmd
}

// serve serves an image from a process of its own until stop is called.
func (b *imageBench) serve(ctx context.Context, layout string) (image string, stop func() error, err error) {
	cmd := exec.CommandContext(ctx, b.self, "serve", layout)
	cmd.Stderr = os.Stderr
	printed, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, fmt.Errorf("start the registry: %w", err)
	}
	stop = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return cmd.Wait()
	}
	if image, err = imageName(printed); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return image, stop, nil
}

// convert measures one image.
func (b *imageBench) convert(ctx context.Context, out io.Writer, r recipe) (err error) {
	layout := filepath.Join(b.images, r.name)
	if err := makeImage(ctx, r, layout); err != nil {
		return err
	}
	image, stop, err := b.serve(ctx, layout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	rounds := 7
	if n, err := strconv.Atoi(os.Getenv("ROUNDS")); err == nil {
		rounds = n
	}
	sif := filepath.Join(b.dir, "x.sif")
	var ours, floor, both []usage
	for range rounds {
		u, err := measure(b.command(ctx, b.self, "convert", image, sif, b.temp), b.temp)
		if err := errors.Join(err, os.RemoveAll(sif)); err != nil {
			return err
		}
		ours = append(ours, u)
		if u, err = measure(b.command(ctx, b.self, "floor", image, "blobs"), b.temp); err != nil {
			return err
		}
		floor = append(floor, u)
		if u, err = measure(b.command(ctx, b.self, "floor", image, "both"), b.temp); err != nil {
			return err
		}
		both = append(both, u)
	}
	base, dbase := medianUsage(floor, usage.seconds), medianUsage(both, usage.seconds)
	for _, f := range []figure{
		{name: "images/" + r.name + "_cpu", value: medianUsage(ours, usage.seconds), unit: "s", against: "floor", base: base, bar: 1.6 * base, barText: "1.6x"},
		{name: "images/" + r.name + "_cpu", value: medianUsage(ours, usage.seconds), unit: "s", against: "floor_with_diffids", base: dbase, bar: 1.6 * dbase, barText: "1.6x"},
		{name: "images/" + r.name + "_wall", value: medianUsage(ours, func(u usage) float64 { return u.wall }), unit: "s", against: "floor", base: medianUsage(floor, func(u usage) float64 { return u.wall }), barText: "-", atLeast: true},
		{name: "images/" + r.name + "_memory", value: medianUsage(ours, func(u usage) float64 { return float64(u.memory) / 1e6 }), unit: "MB", barText: "-", atLeast: true},
		{name: "images/" + r.name + "_disk", value: medianUsage(ours, func(u usage) float64 { return float64(u.disk) / 1e6 }), unit: "MB", barText: "-", atLeast: true},
	} {
		if err := f.print(out); err != nil {
			return err
		}
	}
	for i := range ours {
		fmt.Fprintf(out, "ours %+v\nfloor %+v\nboth %+v\n", ours[i], floor[i], both[i])
	}
	_ = time.Now
	return nil
}

func (u usage) seconds() float64 { return u.cpu }

func medianUsage(runs []usage, of func(usage) float64) float64 {
	values := make([]float64, len(runs))
	for i, u := range runs {
		values[i] = of(u)
	}
	return median(values)
}
