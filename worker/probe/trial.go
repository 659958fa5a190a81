package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/emptyimage"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// Trial is the outcome of a whole container: its image was mounted, its root made writable, and this program ran in
// it, with the GPUs of the job.
type Trial struct {
	// Lack is the reason if it did not run, and empty if it did.
	Lack string `json:"lack,omitempty"`
	// Unpacked is set if the image could not be mounted.
	Unpacked bool    `json:"unpacked,omitempty"`
	Seconds  float64 `json:"seconds"`
	Inside   Inside  `json:"inside,omitzero"`
}

// Inside lists the devices and libraries of a program in a container.
type Inside struct {
	// Open are the devices that it was given and may open, Closed those that it may not.
	Open   []string `json:"open,omitempty"`
	Closed []string `json:"closed,omitempty"`
	// Libraries are those of the driver.
	Libraries []string `json:"libraries,omitempty"`
}

// trialWithin bounds the trial of a container.
const trialWithin = time.Minute

// inContainer is the path of this program in a trial's container.
const inContainer = "/cl-worker"

// TryContainer runs a container of an empty image with these devices in a new directory below the scratch. Program runs in
// it, and calls [LookInside]. TryContainer tries the built-in runtime alone: the others' programs are tried by Look.
func (e Examiner) TryContainer(ctx context.Context, devices []string) (t Trial) {
	ctx, cancel := context.WithTimeout(ctx, trialWithin)
	defer cancel()
	dir, err := os.MkdirTemp(e.Scratch, "probe-")
	if err != nil {
		return Trial{Lack: err.Error()}
	}
	defer func() { _ = filetree.Remove(dir) }() // overlayfs leaves a directory without permissions
	began := e.Now()
	t, err = e.tryContainer(ctx, dir, devices)
	t.Seconds = e.Now().Sub(began).Seconds()
	if err != nil {
		t.Lack = err.Error()
	}
	return t
}

func (e Examiner) tryContainer(ctx context.Context, dir string, devices []string) (t Trial, err error) {
	image, private := filepath.Join(dir, "empty.sif"), filepath.Join(dir, "private")
	if err := errors.Join(emptyimage.Write(image), os.Mkdir(private, 0o700)); err != nil {
		return t, err
	}
	var out, errs *os.File
	for name, f := range map[string]**os.File{"out": &out, "errs": &errs} {
		if *f, err = os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return t, err
		}
		defer func() { _ = (*f).Close() }() // what counts was read
	}
	c := container.Container{
		SIF: image, Runtime: runtimes.Builtin, Args: append([]string{inContainer, "probe", "--inside"}, devices...),
		Binds:   []container.Bind{{Source: e.Program, Target: inContainer, ReadOnly: true}},
		Devices: devices, PrivateDir: private, Stdout: out, Stderr: errs, OnUnpack: func() { t.Unpacked = true },
	}
	if len(devices) > 0 {
		c.GPUVendor = gpudriver.NVIDIA
	}
	exit, err := e.Containers.Run(ctx, c)
	if err != nil {
		return t, err
	}
	said, err := os.ReadFile(errs.Name())
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("a program in a container ended with exit status %d: %s", exit.Code, bytes.TrimSpace(said))
	}
	if err != nil {
		return t, err
	}
	report, err := os.ReadFile(out.Name())
	if err == nil {
		err = json.Unmarshal(report, &t.Inside)
	}
	return t, err
}

// LookInside is the part of a trial in the container: it opens the devices, and lists the driver's libraries.
func LookInside(devices []string) Inside {
	var in Inside
	for _, device := range devices {
		// The kernel asks the cgroup of devices as for open(2), and no driver wakes a GPU for it.
		if err := unix.Access(device, unix.R_OK|unix.W_OK); err != nil {
			in.Closed = append(in.Closed, fmt.Sprintf("%s (%s)", device, err))
			continue
		}
		in.Open = append(in.Open, device)
	}
	entries, err := os.ReadDir(gpudriver.LibraryDir)
	if err != nil {
		return in // a container without a driver
	}
	for _, e := range entries {
		in.Libraries = append(in.Libraries, path.Base(e.Name()))
	}
	return in
}
