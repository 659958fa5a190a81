package main

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/spool"
)

// programs are those that jobs run, on the shared disk.
type programs struct {
	workers map[config.Architecture]string
	// converter is this program, where jobs convert images; else empty.
	converter string
}

// installPrograms copies the programs that jobs need to the shared disk.
func installPrograms(c config.Config, layout spool.Layout) (programs, error) {
	installed := programs{workers: map[config.Architecture]string{}}
	own := config.Architecture("").Canonical()
	for _, a := range append(c.Architectures(), own) {
		source := c.WorkerFor(a)
		if source == "" {
			source = c.Worker
		}
		path, err := installWorker(source, a, layout)
		if err != nil {
			return installed, err
		}
		installed.workers[a] = path
	}
	if c.Image.Queue == "" {
		return installed, nil
	}
	self, err := os.Executable()
	if err == nil {
		installed.converter, err = install(self, spool.BridgeName, own, layout)
	}
	if err != nil {
		return installed, fmt.Errorf("for image.queue: %w", err)
	}
	return installed, nil
}

// paths are those of the programs.
func (p programs) paths() []string {
	paths := slices.Sorted(maps.Values(p.workers))
	if p.converter != "" {
		paths = append(paths, p.converter)
	}
	return paths
}

// queues gives each queue the worker of its nodes.
func (p programs) queues(c config.Config) map[string]plan.Queue {
	queues := c.Plan()
	for name, q := range queues {
		if q.Architecture != "" {
			q.Worker = p.workers[config.Architecture(q.Architecture)]
			queues[name] = q
		}
	}
	return queues
}

// installWorker copies a cl-worker to the shared disk. An empty source is the
// program beside this one.
func installWorker(source string, a config.Architecture, layout spool.Layout) (string, error) {
	if source == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find cl-worker: %w; set worker in the configuration", err)
		}
		source = filepath.Join(filepath.Dir(self), spool.WorkerName)
	}
	path, err := install(source, spool.WorkerName, a, layout)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; set worker in the configuration", err)
	}
	return path, err
}

// install copies a program to the shared disk, under its content's digest, so
// that jobs go on with theirs when the bridge is replaced.
func install(source, name string, a config.Architecture, layout spool.Layout) (string, error) {
	f, err := os.Open(source)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	data, err := io.ReadAll(f)
	if err == nil {
		err = builtFor(f, a)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("read %s %s: %w", name, source, err)
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(layout.Bin(hex.EncodeToString(sum[:])), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	// First, so that no sweep takes an old version away that is used again. The
	// sweeps of the bridge do it once more.
	_ = (spool.Disk{Layout: layout}).Touch(path)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := atomicfile.Write(path, data, 0o700); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return path, nil
}

// builtFor refuses a program of another architecture. What is no ELF file at all,
// such as a script around the program, is the operator's affair.
func builtFor(program io.ReaderAt, a config.Architecture) error {
	f, err := elf.NewFile(program)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	machines := map[elf.Machine]config.Architecture{
		elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_PPC64: "ppc64le", elf.EM_RISCV: "riscv64", elf.EM_S390: "s390x",
	}
	if is := machines[f.Machine]; is != a {
		return fmt.Errorf("it is built for %s, and the queue's nodes are %s", f.Machine, a)
	}
	return nil
}
