package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// imageBench has the directories and programs for all images. All measured programs run
// as the user researcher.
type imageBench struct {
	images    string // directory in which they are kept
	dir       string // of this run
	temp      string // in dir: a file system in memory, for temporary files
	self      string // a copy of this program that anyone may run
	apptainer string // empty if there is none
	as        *syscall.Credential
}

// newImageBench needs root: it mounts a file system. Its use shows the bytes that any
// process wrote, at the same cost for each side.
func newImageBench() *imageBench {
	b := &imageBench{images: filepath.Join(testsite.Base, "bench-images-"+imagesVersion)}
	check(os.MkdirAll(b.images, 0o755))
	if path, err := exec.LookPath(cmp.Or(os.Getenv("CLTEST_APPTAINER"), "apptainer")); err == nil {
		b.apptainer = path
	} else {
		fmt.Println("bench: images are not compared with Apptainer, which is neither on PATH nor at CLTEST_APPTAINER")
	}
	b.as = researcherAccount()
	b.dir = must(os.MkdirTemp(testsite.Base, "bench-images-run-"))
	b.temp, b.self = filepath.Join(b.dir, "tmp"), filepath.Join(b.dir, "bench")
	self := must(os.Executable()) // make installs cl-worker in the same directory
	program(context.Background(), "install", "-m", "0755", self, filepath.Join(filepath.Dir(self), "cl-worker"), b.dir)
	check(errors.Join(os.Mkdir(b.temp, 0o700), os.Chmod(b.dir, 0o755), os.Chown(b.dir, int(b.as.Uid), int(b.as.Gid))))
	check(syscall.Mount("tmpfs", b.temp, "tmpfs", 0, "size=12g,mode=1777"))
	return b
}

func (b *imageBench) close() {
	_ = syscall.Unmount(b.temp, syscall.MNT_DETACH)
	_ = os.RemoveAll(b.dir) // a leftover has no meaning
}

// command is a program that researcher runs.
func (b *imageBench) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = b.dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + b.temp, "TMPDIR=" + b.temp, "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.as}
	return cmd
}

// benchImages compares the conversion of generated images with the least work of any
// reader, and with Apptainer's own conversion.
func benchImages(ctx context.Context) {
	b := newImageBench()
	defer b.close()
	only := os.Getenv("IMAGE")
	for _, r := range recipes() {
		if only == "" || only == r.name {
			b.benchConversion(ctx, r)
		}
	}
	if only == "" || only == "start" {
		b.benchStart(ctx)
	}
	if only == "" || only == "syscalls" {
		b.benchSyscalls(ctx)
	}
}

// side is one way to read or convert an image. Sides take turns.
type side struct {
	name   string
	rounds int
	// command writes a SIF, or nothing.
	command func(image, sif string) *exec.Cmd
	runs    []usage
	sifs    []float64 // MB
}

// sides returns the measured programs for an image: our own, the floor, and Apptainer's.
func (b *imageBench) sides(ctx context.Context, r recipe) []*side {
	part := func(name string, args ...string) *exec.Cmd {
		return b.command(ctx, b.self, append([]string{name}, args...)...)
	}
	sides := []*side{
		{name: "convert", rounds: r.rounds, command: func(image, sif string) *exec.Cmd { return part("convert", image, sif, b.temp) }},
		{name: "floor", rounds: r.rounds, command: func(image, _ string) *exec.Cmd { return part("floor", image, "blobs") }},
		{name: "floor_with_diffids", rounds: r.rounds, command: func(image, _ string) *exec.Cmd { return part("floor", image, "diffids") }},
	}
	if b.apptainer == "" {
		return sides
	}
	build := func(options ...string) func(image, sif string) *exec.Cmd {
		return func(image, sif string) *exec.Cmd {
			args := append([]string{"--quiet", "build", "--disable-cache", "--no-https"}, options...)
			return b.command(ctx, b.apptainer, append(args, sif, "docker://"+image)...)
		}
	}
	sides = append(sides, &side{name: "apptainer_zstd_1", rounds: r.others, command: build("--mksquashfs-args", "-comp zstd -Xcompression-level 1")})
	if !r.long || os.Getenv("LONG") != "" {
		sides = append(sides, &side{name: "apptainer_build", rounds: r.others, command: build()})
	}
	return sides
}

// benchConversion measures one image.
func (b *imageBench) benchConversion(ctx context.Context, r recipe) {
	kept := filepath.Join(b.images, r.name)
	img := makeImage(ctx, r, kept)
	image, stop := serveImage(ctx, layoutBlobs{kept}, r.name, img)
	defer stop()
	sides := b.sides(ctx, r)
	for round := range r.rounds {
		for _, s := range sides {
			if round < s.rounds {
				b.measureSide(s, image)
			}
		}
	}
	compressed := 0.0
	for _, l := range must(img.Manifest()).Layers {
		compressed += float64(l.Size) / 1e6
	}
	for _, f := range conversionFigures(r, sides, compressed) {
		f.name = "images/" + r.name + "_" + f.name
		f.print()
	}
}

// measureSide measures one run of a side.
func (b *imageBench) measureSide(s *side, image string) {
	sif := filepath.Join(b.dir, "x.sif")
	s.runs = append(s.runs, measure(s.command(image, sif), b.temp))
	if info, err := os.Stat(sif); err == nil {
		s.sifs = append(s.sifs, float64(info.Size())/1e6)
	}
	check(os.RemoveAll(sif))
	removeAllIn(b.temp)
}

// conversionFigures compares the first side with the others.
func conversionFigures(r recipe, sides []*side, compressed float64) []figure {
	const pages = 0.1 // MB: a file uses whole pages of a disk, and its directory one
	cpu, wall := func(u usage) float64 { return u.cpu }, func(u usage) float64 { return u.wall }
	memory, disk := func(u usage) float64 { return u.memory }, func(u usage) float64 { return u.disk }
	ours := sides[0]
	bars := map[string]float64{"floor": 1.6, "floor_with_diffids": 1.6, "apptainer_build": 1.0 / 9}
	figures := []figure{{
		name: "disk", value: medianOf(ours.runs, disk), unit: "MB", against: "compressed_layers", base: compressed, bar: compressed + pages, barText: fmt.Sprintf("1x=%.3g", compressed),
	}}
	for _, s := range sides[1:] {
		compare := func(name, unit string, of func(usage) float64) figure {
			return figure{name: name, value: medianOf(ours.runs, of), unit: unit, against: s.name, base: medianOf(s.runs, of)}
		}
		f := compare("cpu", "s", cpu)
		if bar := bars[s.name]; bar != 0 && r.barred {
			f.bar, f.barText = bar*f.base, fmt.Sprintf("%.3gx=%.3g", bar, bar*f.base)
		}
		figures = append(figures, f)
		if s.name == "floor_with_diffids" { // differs from the floor in its cpu alone
			continue
		}
		figures = append(figures, compare("wall", "s", wall), compare("memory", "MB", memory))
		if len(s.sifs) > 0 {
			figures = append(figures, compare("disk", "MB", disk), figure{name: "sif", value: median(ours.sifs), unit: "MB", against: s.name, base: median(s.sifs)})
		}
	}
	return figures
}
