package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// benchImages measures the conversion of images that it makes itself, beside
// the least that anyone does who reads them, and beside Apptainer's own.
func benchImages(ctx context.Context, out io.Writer) (err error) {
	b, err := newImageBench()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if b.apptainer == "" {
		if _, err := fmt.Fprintln(out, "bench: images are not compared with Apptainer, which is neither on PATH nor at CLTEST_APPTAINER"); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	for _, r := range recipes() {
		if only := os.Getenv("IMAGE"); only != "" && only != r.name {
			continue
		}
		figures, err := b.conversions(ctx, r)
		for _, f := range figures {
			err = errors.Join(err, f.print(out))
		}
		if err != nil {
			return fmt.Errorf("image %s: %w", r.name, err)
		}
	}
	if only := os.Getenv("IMAGE"); only != "" && only != "start" {
		return nil
	}
	figures, err := b.startFigures(ctx)
	for _, f := range figures {
		err = errors.Join(err, f.print(out))
	}
	return err
}

// side is a way to deal with an image, which takes turns with others.
type side struct {
	name   string
	rounds int
	// command writes to sif, or to nothing.
	command func(image, sif string) *exec.Cmd
	runs    []usage
	sizes   []float64 // of the SIFs
}

// median is the median of what the runs took of something.
func (s *side) median(of func(usage) float64) float64 {
	values := make([]float64, len(s.runs))
	for i, u := range s.runs {
		values[i] = of(u)
	}
	return median(values)
}

// What figures are about.
func cpu(u usage) float64    { return u.cpu }
func wall(u usage) float64   { return u.wall }
func memory(u usage) float64 { return float64(u.memory) / 1e6 }
func disk(u usage) float64   { return float64(u.disk) / 1e6 }

// sides are what is measured of an image, our own first, and then the floor.
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

// conversions measures one image.
func (b *imageBench) conversions(ctx context.Context, r recipe) (figures []figure, err error) {
	kept := filepath.Join(b.images, r.name)
	if err := makeImage(ctx, r, kept); err != nil {
		return nil, err
	}
	image, stop, err := b.serve(ctx, kept)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	layers, err := compressedSize(kept)
	if err != nil {
		return nil, err
	}
	sides := b.sides(ctx, r)
	for round := range r.rounds {
		for _, s := range sides {
			if round >= s.rounds {
				continue
			}
			if err := b.turn(s, image); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return imageFigures(r, sides, layers), nil
}

// turn measures one run of a side.
func (b *imageBench) turn(s *side, image string) error {
	sif := filepath.Join(b.dir, "x.sif")
	u, err := measure(s.command(image, sif), b.temp)
	if err != nil {
		return err
	}
	s.runs = append(s.runs, u)
	if info, err := os.Stat(sif); err == nil {
		s.sizes = append(s.sizes, float64(info.Size())/1e6)
	}
	if err := errors.Join(os.RemoveAll(sif), empty(b.temp)); err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	return nil
}

// imageFigures compares the first side with the others. A file on a disk takes
// whole pages, and its directory one.
func imageFigures(r recipe, sides []*side, layers int64) []figure {
	const pages = 0.1 // MB
	ours, compressed := sides[0], float64(layers)/1e6
	shares := map[string]float64{"floor": 1.6, "floor_with_diffids": 1.6, "apptainer_build": 1.0 / 9}
	figures := []figure{{
		name: "disk", value: ours.median(disk), unit: "MB", against: "compressed_layers", base: compressed, bar: compressed + pages, barText: fmt.Sprintf("1x=%.3g", compressed),
	}}
	for _, s := range sides[1:] {
		f := figure{name: "cpu", value: ours.median(cpu), unit: "s", against: s.name, base: s.median(cpu), barText: "-", atLeast: true}
		if share := shares[s.name]; share != 0 && r.barred {
			f.bar, f.barText, f.atLeast = share*f.base, fmt.Sprintf("%.3gx=%.3g", share, share*f.base), false
		}
		figures = append(figures, f)
		if s.name == "floor_with_diffids" {
			continue // but for its digests, the floor
		}
		figures = append(figures,
			figure{name: "wall", value: ours.median(wall), unit: "s", against: s.name, base: s.median(wall), barText: "-", atLeast: true},
			figure{name: "memory", value: ours.median(memory), unit: "MB", against: s.name, base: s.median(memory), barText: "-", atLeast: true})
		if len(s.sizes) > 0 {
			figures = append(figures,
				figure{name: "disk", value: ours.median(disk), unit: "MB", against: s.name, base: s.median(disk), barText: "-", atLeast: true},
				figure{name: "sif", value: median(ours.sizes), unit: "MB", against: s.name, base: median(s.sizes), barText: "-", atLeast: true})
		}
	}
	for i := range figures {
		figures[i].name = "images/" + r.name + "_" + figures[i].name
	}
	return figures
}

// keptImages is where images are kept for the next run.
func keptImages() string { return filepath.Join(testsite.Base, "bench-images-"+imagesVersion) }
