package sharedfiles

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

// Programs are the paths of the programs that jobs run, on the shared disk. Each lies in a directory
// that is named for its content, so that a job goes on with its program when the bridge is replaced.
type Programs struct {
	// Workers are the cl-workers of the nodes' architectures and of this host's.
	Workers map[config.Architecture]string
	// Converter is this program, cl-bridge; empty where no jobs convert images.
	Converter string
}

// InstallPrograms copies the programs that jobs of a configuration need: cl-worker for the nodes'
// architectures and, where jobs convert images, cl-bridge itself.
func InstallPrograms(c config.Config, layout spool.Layout) (Programs, error) {
	installed := Programs{Workers: map[config.Architecture]string{}}
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
		installed.Workers[a] = path
	}
	if c.Image.Queue == "" {
		return installed, nil
	}
	self, err := os.Executable()
	if err == nil {
		installed.Converter, err = install(self, spool.BridgeName, own, layout)
	}
	if err != nil {
		return installed, fmt.Errorf("for image.queue: %w", err)
	}
	return installed, nil
}

// Worker returns the cl-worker for nodes of this host's architecture.
func (p Programs) Worker() string { return p.Workers[config.Architecture("").Canonical()] }

// Paths returns the paths of all programs.
func (p Programs) Paths() []string {
	paths := slices.Sorted(maps.Values(p.Workers))
	if p.Converter != "" {
		paths = append(paths, p.Converter)
	}
	return paths
}

// Queues returns the queues as package plan knows them, with the worker of their nodes.
func (p Programs) Queues(c config.Config) map[string]plan.Queue {
	queues := c.Plan()
	for name, q := range queues {
		if q.Architecture != "" {
			q.Worker = p.Workers[config.Architecture(q.Architecture)]
			queues[name] = q
		}
	}
	return queues
}

// installWorker copies a cl-worker. An empty source means the cl-worker in the directory of this program.
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

// install copies a program into the directory of its content's digest.
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
	// The program may have been there for long, unused. A fresh time keeps sweeps of other
	// bridges from removing it now.
	_ = (spool.Disk{Layout: layout}).Touch(path)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := atomicfile.Write(path, data, 0o700); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return path, nil
}

// builtFor refuses a program of another architecture. It accepts what is no ELF file,
// such as a script around the program.
func builtFor(program io.ReaderAt, a config.Architecture) error {
	f, err := elf.NewFile(program)
	if err != nil {
		return nil //nolint:nilerr // no ELF file
	}
	machines := map[elf.Machine]config.Architecture{
		elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_PPC64: "ppc64le", elf.EM_RISCV: "riscv64", elf.EM_S390: "s390x",
	}
	if is := machines[f.Machine]; is != a {
		return fmt.Errorf("it is built for %s, and the queue's nodes are %s", f.Machine, a)
	}
	return nil
}

// InPlace returns the programs of a site whose jobs run on this host, with a cl-worker that lies on its
// own disk.
func InPlace(worker string) Programs {
	return Programs{Workers: map[config.Architecture]string{config.Architecture("").Canonical(): worker}}
}
