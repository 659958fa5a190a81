package sharedfiles

import (
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Programs are the programs that jobs run, on the shared disk. Each lies in a directory that is named for its
// content, so that a job goes on with its program when the bridge is replaced.
type Programs struct {
	// Workers are the cl-workers of the nodes' architectures and of this host's, as a rule cl-worker-node.
	Workers map[config.Architecture]sbatch.Program
	// Converter is this program, cl-bridge; zero where no jobs convert images.
	Converter sbatch.Program
}

// InstallPrograms copies the programs that jobs of a configuration need: cl-worker for the nodes'
// architectures and, where jobs convert images, cl-bridge itself.
func InstallPrograms(c config.Config, layout spool.Layout) (Programs, error) {
	installed, err := workers(c, layout, installWorker)
	if err != nil || c.Image.Queue == "" {
		return installed, err
	}
	self, err := os.Executable()
	if err == nil {
		installed.Converter, err = install(self, spool.BridgeName, config.Architecture("").Canonical(), layout)
	}
	if err != nil {
		return installed, fmt.Errorf("for image.queue: %w", err)
	}
	return installed, nil
}

// FindWorkers returns the workers that InstallPrograms would install, and writes nothing.
func FindWorkers(c config.Config, layout spool.Layout) (Programs, error) {
	return workers(c, layout, findWorker)
}

// takeWorker installs a cl-worker, or only looks at it. An empty source means the cl-worker in the directory of this
// program.
type takeWorker func(source string, a config.Architecture, layout spool.Layout) (sbatch.Program, error)

// workers returns the cl-worker of each architecture.
func workers(c config.Config, layout spool.Layout, take takeWorker) (Programs, error) {
	all := Programs{Workers: map[config.Architecture]sbatch.Program{}}
	for _, a := range append(c.Architectures(), config.Architecture("").Canonical()) {
		worker, err := take(cmp.Or(c.WorkerFor(a), c.Worker), a, layout)
		if err != nil {
			return all, err
		}
		all.Workers[a] = worker
	}
	return all, nil
}

// Unchecked returns the programs for jobs that do not check them.
func (p Programs) Unchecked() Programs {
	plain := Programs{Workers: map[config.Architecture]sbatch.Program{}, Converter: sbatch.Program{Path: p.Converter.Path}}
	for a, worker := range p.Workers {
		plain.Workers[a] = sbatch.Program{Path: worker.Path}
	}
	return plain
}

// Worker returns the cl-worker for nodes of this host's architecture.
func (p Programs) Worker() sbatch.Program { return p.Workers[config.Architecture("").Canonical()] }

// Paths returns the paths of all programs.
func (p Programs) Paths() []string {
	var paths []string
	for _, worker := range p.Workers {
		paths = append(paths, worker.Path)
	}
	slices.Sort(paths)
	if p.Converter.Path != "" {
		paths = append(paths, p.Converter.Path)
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

// installWorker copies a cl-worker (takeWorker).
func installWorker(source string, a config.Architecture, layout spool.Layout) (sbatch.Program, error) {
	source, err := workerSource(source)
	if err != nil {
		return sbatch.Program{}, err
	}
	worker, err := install(source, spool.WorkerName, a, layout)
	return worker, withCure(err)
}

// findWorker returns what installWorker would, and writes nothing (takeWorker).
func findWorker(source string, a config.Architecture, layout spool.Layout) (sbatch.Program, error) {
	source, err := workerSource(source)
	if err != nil {
		return sbatch.Program{}, err
	}
	_, p, err := identify(source, spool.WorkerName, a, layout)
	if err != nil {
		return p, withCure(err)
	}
	if there, err := sbatch.Identify(p.Path, sbatch.Program{}); err == nil && there.SHA256 == p.SHA256 {
		return there, nil // with its stamp
	}
	return p, nil
}

// workerSource returns the path of a cl-worker.
func workerSource(source string) (string, error) {
	if source != "" {
		return source, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find cl-worker: %w; set worker in the configuration", err)
	}
	return workerIn(filepath.Dir(self)), nil
}

// workerIn returns the path of the worker in a directory of programs: that of cl-worker-node, which is the part of cl-worker that nodes
// need, or that of cl-worker.
func workerIn(dir string) string {
	node := filepath.Join(dir, "cl-worker-node")
	if _, err := os.Stat(node); errors.Is(err, fs.ErrNotExist) {
		return filepath.Join(dir, spool.WorkerName)
	}
	return node
}

func withCure(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; set worker in the configuration", err)
	}
	return err
}

// identify reads a program, and returns it with the place on the shared disk for its content.
func identify(source, name string, a config.Architecture, layout spool.Layout) ([]byte, sbatch.Program, error) {
	f, err := os.Open(source)
	if err != nil {
		return nil, sbatch.Program{}, fmt.Errorf("find %s: %w", name, err)
	}
	data, err := io.ReadAll(f)
	if err == nil {
		err = builtFor(f, a)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, sbatch.Program{}, fmt.Errorf("read %s %s: %w", name, source, err)
	}
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	return data, sbatch.Program{Path: filepath.Join(layout.Bin(digest), name), SHA256: digest}, nil
}

// install copies a program into the directory of its content's digest. A file that is there is only used if it has
// that content.
func install(source, name string, a config.Architecture, layout spool.Layout) (sbatch.Program, error) {
	data, p, err := identify(source, name, a, layout)
	if err != nil {
		return p, err
	}
	if err := os.MkdirAll(filepath.Dir(p.Path), 0o700); err != nil {
		return p, fmt.Errorf("install %s: %w", name, err)
	}
	// The program may have been there for long, unused. A fresh time keeps sweeps of other
	// bridges from removing it now.
	_ = (spool.Disk{Layout: layout}).Touch(p.Path)
	there, err := sbatch.Identify(p.Path, sbatch.Program{})
	if err == nil && there.SHA256 == p.SHA256 {
		return there, nil
	}
	if err := atomicfile.Write(p.Path, data, 0o700); err != nil {
		return p, fmt.Errorf("install %s: %w", name, err)
	}
	if there, err = sbatch.Identify(p.Path, sbatch.Program{}); err == nil && there.SHA256 != p.SHA256 {
		err = fmt.Errorf("somebody else has written %s", p.Path)
	}
	if err != nil {
		return p, fmt.Errorf("install %s: %w", name, err)
	}
	return there, nil
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
	return Programs{Workers: map[config.Architecture]sbatch.Program{config.Architecture("").Canonical(): {Path: worker}}}
}
