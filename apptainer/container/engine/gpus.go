package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
)

// gpuSupport has the fields of `docker info` about GPUs.
type gpuSupport struct {
	ServerVersion string
	// Runtimes has "nvidia" if the engine is configured with the nvidia-container-toolkit.
	Runtimes map[string]json.RawMessage
	// CDISpecDirs are the directories of the Container Device Interface, from Docker 25 on; empty
	// if it is off. DiscoveredDevices are the devices in them, from 28.2 on.
	CDISpecDirs       []string
	DiscoveredDevices []struct{ Source, ID string }
}

// gpuWay is a way in which an engine shows GPUs of NVIDIA.
type gpuWay string

const (
	// byOption is `docker run --gpus`, with the toolkit's hook.
	byOption gpuWay = "--gpus"
	// byCDI is a device of the Container Device Interface.
	byCDI gpuWay = "CDI"
	// plainly shows the device files and the host's driver, as Apptainer's --nv does.
	plainly gpuWay = "plain"
)

// cdiKind is the kind of NVIDIA's GPUs in the Container Device Interface.
const cdiKind = "nvidia.com/gpu"

// gpuHost finds GPUs and their driver on the host. root is the directory with its /proc, /etc and
// /usr; empty means "/".
type gpuHost struct{ root string }

// way chooses a way by the features of the engine and the host.
func (h gpuHost) way(s gpuSupport, podman bool) gpuWay {
	_, runtime := s.Runtimes["nvidia"]
	switch {
	case podman && h.hasCDI([]string{"/etc/cdi", "/var/run/cdi"}): // containers.conf(5): cdi_spec_dirs
		return byCDI
	case podman:
		return plainly
	case s.ServerVersion != "" && (runtime || h.hasHook()): // a podman that is called docker has no version there
		return byOption
	case len(s.CDISpecDirs) > 0 && (s.hasDiscovered() || h.hasCDI(s.CDISpecDirs)):
		return byCDI
	}
	return plainly
}

func (s gpuSupport) hasDiscovered() bool {
	for _, d := range s.DiscoveredDevices {
		if strings.HasPrefix(d.ID, cdiKind+"=") {
			return true
		}
	}
	return false
}

// hasHook reports whether the host has the program that --gpus needs (moby daemon/nvidia_linux.go:
// nvidiaHook).
func (h gpuHost) hasHook() bool {
	for _, dir := range []string{"/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin"} {
		if _, err := os.Stat(h.at(dir, "nvidia-container-runtime-hook")); err == nil {
			return true
		}
	}
	return false
}

// hasCDI reports whether a directory has a specification of NVIDIA's GPUs.
func (h gpuHost) hasCDI(dirs []string) bool {
	for _, dir := range dirs {
		files, err := filepath.Glob(h.at(dir, "*"))
		if err != nil {
			continue
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil && strings.Contains(string(text), cdiKind) {
				return true
			}
		}
	}
	return false
}

func (h gpuHost) at(parts ...string) string {
	return filepath.Join(append([]string{"/", h.root}, parts...)...)
}

// gpu is one of the host's GPUs of NVIDIA.
type gpu struct {
	// index is nvidia-smi's, and name its UUID or, if the driver does not tell that, its index. Both are
	// the number of the device file if the driver does not list the GPU.
	index, name string
}

// gpu finds the GPU of a device file.
func (h gpuHost) gpu(minor int) gpu {
	listed, _ := gpudriver.GPUs(h.at("proc")) // without a list, the number of the device file has to do
	index := slices.IndexFunc(listed, func(g gpudriver.GPU) bool { return g.Minor == minor })
	if index < 0 {
		return gpu{strconv.Itoa(minor), strconv.Itoa(minor)}
	}
	return gpu{strconv.Itoa(index), cmp.Or(listed[index].UUID, strconv.Itoa(index))}
}

// shown has the options that show a container its devices.
type shown struct {
	options []string
	// driver is set if the options also show the host's driver, so that the command must search
	// there.
	driver bool
}

// show returns the options for a container's devices. It shows NVIDIA's GPUs with their driver by
// the engine's own means, if the host has that driver and the engine the means.
func (h gpuHost) show(c container.Container, env []string, way gpuWay) (s shown, err error) {
	_, err = os.Stat(h.at("proc/driver/nvidia/version"))
	own := err == nil && way != plainly
	var gpus []gpu
	for _, device := range c.Devices {
		digits, nvidia := strings.CutPrefix(device, "/dev/nvidia")
		minor, notNumber := strconv.Atoi(digits)
		switch {
		case nvidia && own && notNumber == nil:
			gpus = append(gpus, h.gpu(minor))
		case nvidia && own: // the engine adds the control devices
		default:
			s.options = append(s.options, "--device", device)
		}
	}
	if !own && c.GPUVendor == gpudriver.NVIDIA {
		driver, err := (gpudriver.Host{Root: h.root}).Find(gpudriver.NVIDIA)
		if err != nil {
			return s, fmt.Errorf("show the GPUs: %w", err)
		}
		if s.driver = !driver.IsEmpty(); s.driver {
			for _, file := range driver.All(env) {
				s.options = append(s.options, enter.MountOptions(container.Bind{Source: file.Path, Target: file.Name, ReadOnly: true}, "readonly")...)
			}
		}
		return s, nil
	}
	if len(gpus) == 0 {
		return s, nil
	}
	var names []string
	for _, g := range gpus {
		names = append(names, g.name)
		if way == byCDI {
			s.options = append(s.options, "--device", cdiKind+"="+g.index)
		}
	}
	if way == byOption {
		s.options = append(s.options, "--gpus", `"device=`+strings.Join(names, ",")+`"`)
	}
	return s, nil
}
