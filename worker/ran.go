package worker

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
	"github.com/cl-slurm/cl-slurm/spool"
)

// ran returns the platform of the command. Of GPUs it reads files of /proc and /sys, a small one for each, which touches no GPU.
// The version of the runtime comes later, from askVersion.
func (r *attemptRun) ran(choice container.Choice) spool.Ran {
	ran := spool.Ran{Runtime: choice.Runtime, Reason: choice.Reason, Worker: r.Version, Cluster: r.Cluster}
	switch {
	case len(r.gpus.gpus) == 0:
	case r.gpus.vendor == gpudriver.NVIDIA:
		ran.GPUs, ran.GPUDriver = r.gpus.modelsNVIDIA(r.procDir()), gpudriver.ModuleVersion(r.driver.Root)
	default:
		sys := r.sysDir()
		ran.GPUs, ran.GPUDriver = r.gpus.modelsAMD(sys), strings.TrimSpace(readText(filepath.Join(sys, "module/amdgpu/version")))
	}
	return ran
}

// modelsNVIDIA returns the model of each GPU, or of each MIG device if all GPUs that may have it are of one model; empty
// texts for unknown ones.
func (a gpuAllocation) modelsNVIDIA(proc string) []string {
	listed, _ := gpudriver.GPUs(proc) // the models are unknown after an error
	models := make([]string, len(a.gpus))
	for i, g := range a.gpus {
		if at := slices.IndexFunc(listed, func(l gpudriver.GPU) bool { return l.Minor == g.index }); at >= 0 {
			models[i] = listed[at].Model
		}
	}
	if len(a.mig) == 0 {
		return models
	}
	model := ""
	if models = slices.Compact(models); len(models) == 1 && models[0] != "" {
		model = "MIG device of " + models[0]
	}
	return slices.Repeat([]string{model}, len(a.mig))
}

// modelsAMD returns the model of each GPU, as its firmware names it; empty texts for unknown ones (the kernel's
// Documentation/gpu/amdgpu, product_name).
func (a gpuAllocation) modelsAMD(sys string) []string {
	models := make([]string, len(a.gpus))
	for i, g := range a.gpus {
		models[i] = strings.TrimSpace(readText(filepath.Join(sys, "class/drm", filepath.Base(g.path), "device/product_name")))
	}
	return models
}

// versionWithin bounds the question for a runtime's version.
const versionWithin = 10 * time.Second

// runtimeVersion finds the version in the answers of "apptainer --version", "podman --version" and the like: "apptainer
// version 1.3.4", "Docker version 24.0.5, build ced0996".
var runtimeVersion = lazyregexp.New(`version (\d[^\s,]*)`)

// askVersion notes the version of a runtime that is a program of the host's. A command that ends before that has none in its
// records.
func (r *attemptRun) askVersion(ctx context.Context, choice container.Choice) {
	if choice.Program == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, versionWithin)
	defer cancel()
	ask := command.Command{Args: []string{choice.Program, "--version"}, Env: []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}}
	out, err := background.Call(ctx, func() ([]byte, error) { return ask.Output(ctx) })
	if err != nil {
		r.Log.InfoContext(ctx, "the runtime's version is not known", slog.String("runtime", string(choice.Runtime)), slog.Any("error", err))
		return
	}
	if m := runtimeVersion().FindSubmatch(out); m != nil {
		r.usage.setVersion(choice.Runtime, string(m[1]))
	}
}
