package imagejob

import (
	"fmt"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// The files of a job's directory.
const (
	specName     = "spec.json"
	jobName      = "job.json"
	progressName = "progress.json"
	sifName      = "image.sif"
	resultName   = "result.json"
	outputName   = "slurm.out"
)

// spec describes a conversion for a job. The same build writes and reads it, because the bridge copies the
// program that its jobs run.
type spec struct {
	// Reference is the one that researchers use; Layout is the directory of the pulled image.
	Reference    string `json:"image"`
	Layout       string `json:"layout"`
	Origin       string `json:"origin"`
	Digest       string `json:"digest"`
	Architecture string `json:"architecture"`
	Settings
}

// Settings are a job's parameters for the conversion of an image.
type Settings struct {
	Compression string `json:"compression"`
	Level       int    `json:"level"`
	BlockSize   int    `json:"block_size"`
	Processors  int    `json:"processors"`
	MemoryMiB   int    `json:"memory_mib"`
	MaxBytes    int64  `json:"max_bytes"`
	MaxEntries  int    `json:"max_entries"`
}

func newSpec(settings Settings, img, pulled source.Image) spec {
	return spec{
		Reference: img.Reference.String(), Layout: pulled.Reference.Path(), Origin: pulled.Origin,
		Digest: img.Digest, Architecture: img.Architecture, Settings: settings,
	}
}

// Progress is the progress of a conversion, like an apptainer.Progress.
type Progress struct {
	Stage       string
	Done, Total int64
}

// submitted is the job for a spec.
type submitted struct {
	ID   sbatch.JobID `json:"id"`
	Name string       `json:"name"`
}

// result is a job's outcome; Error is empty for a success. Killed is set if a program of the conversion was
// killed, for example by the kernel for want of memory.
type result struct {
	Error     string `json:"error"`
	Transient bool   `json:"transient"`
	Killed    bool   `json:"killed"`
}

func writeRecord(dir, name string, record any) error {
	return atomicfile.WriteJSON(filepath.Join(dir, name), record)
}

func readRecord(dir, name string, record any) error {
	if err := atomicfile.ReadJSON(filepath.Join(dir, name), record); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}
