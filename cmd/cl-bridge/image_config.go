package main

import (
	"cmp"
	"errors"
	"fmt"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// imageConfig says which images bundles run in, and how they are brought in.
type imageConfig struct {
	DefaultCPU string    `toml:"default_cpu"`
	DefaultGPU string    `toml:"default_gpu"`
	Remember   *duration `toml:"remember"`
	Offline    bool      `toml:"offline"`
	Roots      []string  `toml:"roots"`

	Registry     map[string]registryConfig `toml:"registry"`
	DockerConfig string                    `toml:"docker_config"`
	Logins       string                    `toml:"logins"`
	Certs        []string                  `toml:"certs"`

	Queue       string    `toml:"queue"`
	Time        *duration `toml:"time"`
	Conversions int       `toml:"conversions"`
	TempDir     string    `toml:"temp_dir"`
	Compression string    `toml:"compression"`
	Level       int       `toml:"level"`
	BlockSize   size      `toml:"block_size"`
	Processors  int       `toml:"processors"`
	Memory      size      `toml:"memory"`
	Nice        int       `toml:"nice"`
}

func (c imageConfig) check(shared string) error {
	for _, root := range c.Roots {
		if err := checkRoot("image.roots", root, shared); err != nil {
			return err
		}
	}
	for key, image := range map[string]string{"default_cpu": c.DefaultCPU, "default_gpu": c.DefaultGPU} {
		if image != "" && !isImage(image) {
			return fmt.Errorf("image.%s = %q is not the name of an image such as \"python:3.12\"", key, image)
		}
	}
	switch {
	case c.Remember != nil && *c.Remember == 0:
		return errors.New("image.remember is 0: a registry would be asked for each bundle; write \"10s\" for nearly that")
	case c.Conversions < 0:
		return errors.New("image.conversions is negative")
	case c.Processors < 0:
		return errors.New("image.processors is negative")
	}
	if err := c.converter().Check(); err != nil {
		return fmt.Errorf("[image]: %w", err)
	}
	return errors.Join(c.checkRegistries(), checkTempDir(c.TempDir))
}

// converter makes SIFs as configured.
func (c imageConfig) converter() apptainer.Converter {
	const mib = 1 << 20
	return apptainer.Converter{
		TempDir: c.TempDir, Compression: c.Compression, Level: c.Level, BlockSize: int(c.BlockSize),
		Processors: c.Processors, MemoryMiB: int(c.Memory / mib), Nice: c.Nice,
	}
}

// checkTempDir refuses a directory in the user's home: that is small, backed up
// and far away, and the layers of an image are large and gone in a minute.
func checkTempDir(dir string) error {
	if dir == "" {
		return nil
	}
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("image.temp_dir = %q: want an absolute path on this host", dir)
	}
	me, err := user.Current()
	if err == nil && me.HomeDir != "/" && below(dir, me.HomeDir) {
		return fmt.Errorf("image.temp_dir = %q lies in your home directory, which layers would fill: name a directory on a local disk, or leave it out to use the cache's", dir)
	}
	return nil
}

// isImage says whether a text may be the name of an image.
func isImage(name string) bool {
	_, err := source.ParseReference(name)
	return err == nil
}

// architectures are those that nodes may have.
func architectures() []string { return []string{"amd64", "arm64", "ppc64le", "riscv64", "s390x"} }

// architecture is that of nodes, in Go's spelling or that of uname(1); empty is
// this host's.
type architecture string

// or is the architecture in Go's spelling.
func (a architecture) or() architecture {
	return architecture(probe.Architecture(string(a)))
}

// other is the architecture in Go's spelling, or nothing where it is this host's.
func (a architecture) other() architecture {
	if a.or() == architecture(runtime.GOARCH) {
		return ""
	}
	return a.or()
}

func (a architecture) check() error {
	if !slices.Contains(architectures(), string(a.or())) {
		return fmt.Errorf("%q is no architecture that is known here: want one of %s", a, strings.Join(architectures(), ", "))
	}
	return nil
}

// architectures are those of the queues' nodes, sorted.
func (c config) architectures() []architecture {
	var all []architecture
	for _, q := range c.Queue {
		all = append(all, q.Architecture.or())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// defaultImages are the images of a queue's bundles that name none.
func (c config) defaultImages(q *queueConfig) []string {
	if q.DefaultImage != "" {
		return []string{q.DefaultImage}
	}
	return []string{cmp.Or(c.Image.DefaultCPU, plan.DefaultCPUImage), cmp.Or(c.Image.DefaultGPU, plan.DefaultGPUImage)}
}

// images brings images into a cache, as configured.
func (c config) images(content *cache.Cache, from source.Source) *staging.Images {
	layout, converter := spool.Layout(c.Shared), c.Image.converter()
	converter.Source, converter.Reserve = from, c.lowWater().Of
	return &staging.Images{
		Cache: content, Converter: converter, Login: c.login(from),
		Kept:     staging.KeptImages(layout.KeptImages()),
		Names:    staging.ImageNames{Dir: layout.ImageNames()},
		Remember: c.Image.Remember.or(staging.DefaultRemember),
		Offline:  c.Image.Offline,
		AtOnce:   c.Image.Conversions,
		LowWater: c.lowWater().Of,
	}
}
