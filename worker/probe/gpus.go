package probe

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// GPUs is the way of NVIDIA's GPUs of a node to a container: device files, kernel module, libraries, and the GPUs of
// the job.
type GPUs struct {
	// Present are the N of /dev/nvidiaN, and Open those that this process may open.
	Present []int `json:"present,omitempty"`
	Open    []int `json:"open,omitempty"`
	// Closed are the driver's other device files that a program needs and cannot open, each with the reason.
	Closed []string `json:"closed,omitempty"`
	// Module is the version of the kernel's module, Library that of libcuda.so.1. Empty means that there is none.
	Module  string `json:"module,omitempty"`
	Library string `json:"library,omitempty"`
	// Bound are the libraries and programs that containers get. Unread is the reason why they could not be found.
	Bound  []string `json:"bound,omitempty"`
	Unread string   `json:"unread,omitempty"`
	// SMI is the answer of nvidia-smi; Mute is the reason if there is none.
	SMI  SMI    `json:"smi,omitzero"`
	Mute string `json:"mute,omitempty"`
	// Job and Visible are SLURM_JOB_GPUS and CUDA_VISIBLE_DEVICES. InJob is set in a job of Slurm.
	Job     string `json:"job,omitempty"`
	Visible string `json:"visible,omitempty"`
	InJob   bool   `json:"in_job,omitempty"`
}

// SMI is the answer of nvidia-smi -q.
type SMI struct {
	Driver string   `json:"driver,omitempty"`
	CUDA   string   `json:"cuda,omitempty"` // the newest CUDA that the driver knows
	GPUs   []SMIGPU `json:"gpus,omitempty"`
}

// SMIGPU is a GPU as nvidia-smi shows it.
type SMIGPU struct {
	Name  string `json:"name,omitempty"`
	UUID  string `json:"uuid,omitempty"`
	Minor string `json:"minor,omitempty"`
	MIG   bool   `json:"mig,omitempty"`
}

// smiWithin bounds nvidia-smi. Without persistence mode it loads the driver first, for each GPU.
const smiWithin = 45 * time.Second

// LookAtGPUs examines the host in root, for a job with these variables. An empty root means "/".
func LookAtGPUs(ctx context.Context, root string, getenv func(string) string) GPUs {
	root = cmp.Or(root, "/")
	g := GPUs{Job: getenv("SLURM_JOB_GPUS"), Visible: getenv("CUDA_VISIBLE_DEVICES"), InJob: getenv("SLURM_JOB_ID") != ""}
	g.lookAtDevices(filepath.Join(root, "dev"))
	g.Module = gpudriver.ModuleVersion(root)
	if len(g.Present) == 0 && g.Module == "" {
		return g // a node without GPUs
	}
	host := gpudriver.Host{Root: root}
	driver, err := host.Find(gpudriver.NVIDIA)
	if err != nil {
		g.Unread = err.Error()
	}
	for _, lib := range driver.Libraries {
		g.Bound = append(g.Bound, lib.Name)
	}
	for _, program := range driver.Programs {
		g.Bound = append(g.Bound, filepath.Base(program))
	}
	g.Library = driver.Version()
	if smi := host.Program("nvidia-smi"); smi != "" {
		g.SMI, err = askSMI(ctx, smi)
		if err != nil {
			g.Mute = err.Error()
		}
	} else {
		g.Mute = "the node has no nvidia-smi"
	}
	return g
}

// devices returns the device files for a container of this process: those of the GPUs that it may open, and the
// driver's. It returns none if it may open no GPU.
func (g *GPUs) devices() []string {
	var files []string
	for _, n := range g.Open {
		files = append(files, fmt.Sprintf("/dev/nvidia%d", n))
	}
	if len(files) == 0 {
		return nil
	}
	for _, name := range needed() {
		if !slices.ContainsFunc(g.Closed, func(closed string) bool { return strings.HasPrefix(closed, "/dev/"+name+" ") }) {
			files = append(files, "/dev/"+name)
		}
	}
	return files
}

// needed are the driver's device files that belong to no single GPU and that every program with CUDA opens.
func needed() []string { return []string{"nvidiactl", "nvidia-uvm"} }

// device matches a device file of one GPU.
var device = lazyregexp.New(`^nvidia(\d{1,4})$`)

// lookAtDevices lists the device files in dev.
func (g *GPUs) lookAtDevices(dev string) {
	entries, err := os.ReadDir(dev)
	if err != nil {
		return
	}
	for _, e := range entries {
		m := device().FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			continue // it has digits
		}
		g.Present = append(g.Present, n)
		// The kernel asks the cgroup of devices as for open(2), and no driver wakes a GPU for it.
		if unix.Access(filepath.Join(dev, e.Name()), unix.R_OK|unix.W_OK) == nil {
			g.Open = append(g.Open, n)
		}
	}
	slices.Sort(g.Present)
	slices.Sort(g.Open)
	if len(g.Present) == 0 {
		return
	}
	for _, name := range needed() {
		if err := unix.Access(filepath.Join(dev, name), unix.R_OK|unix.W_OK); err != nil {
			reason := "it is closed to this user"
			if errors.Is(err, fs.ErrNotExist) {
				reason = "it is missing"
			}
			g.Closed = append(g.Closed, fmt.Sprintf("/dev/%s (%s)", name, reason))
		}
	}
}

// askSMI asks nvidia-smi. It does not wait for one that a broken GPU keeps from ending when it is killed.
func askSMI(ctx context.Context, program string) (SMI, error) {
	ctx, cancel := context.WithTimeout(ctx, smiWithin)
	defer cancel()
	var said []byte // it prints its reasons to standard output
	_, err := background.Call(ctx, func() (struct{}, error) {
		var out bytes.Buffer
		err := command.Command{Args: []string{program, "-q"}, Env: []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}, Stdout: &out}.Run(ctx)
		said = out.Bytes()
		return struct{}{}, err
	})
	switch {
	case ctx.Err() != nil:
		return SMI{}, fmt.Errorf("nvidia-smi did not answer within %s", smiWithin)
	case err != nil && len(bytes.TrimSpace(said)) > 0:
		return SMI{}, fmt.Errorf("nvidia-smi fails: %s", strings.Join(strings.Fields(string(said)), " "))
	case err != nil:
		return SMI{}, fmt.Errorf("nvidia-smi fails: %w", err)
	}
	return parseSMI(string(said)), nil
}

// parseSMI reads the output of nvidia-smi -q: names and values, with the GPUs one after the other.
func parseSMI(text string) SMI {
	var s SMI
	section := ""
	for line := range strings.Lines(text) {
		name, value, pair := strings.Cut(strings.TrimSpace(line), " : ")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !pair {
			section = name
			if strings.HasPrefix(line, "GPU ") {
				s.GPUs = append(s.GPUs, SMIGPU{})
			}
			continue
		}
		switch {
		case name == "Driver Version" && s.Driver == "":
			s.Driver = value
		case name == "CUDA Version" && s.CUDA == "":
			s.CUDA = value
		}
		if len(s.GPUs) == 0 {
			continue
		}
		last := &s.GPUs[len(s.GPUs)-1]
		switch {
		case name == "Product Name":
			last.Name = value
		case name == "GPU UUID":
			last.UUID = value
		case name == "Minor Number":
			last.Minor = value
		case name == "Current" && section == "MIG Mode":
			last.MIG = value == "Enabled"
		}
	}
	return s
}
