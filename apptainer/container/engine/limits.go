package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/affinity"
)

// facts are an engine's features that its options depend on.
type facts struct {
	// memory, swap, cpus and processes are set if it can limit these.
	memory, swap, cpus, processes bool
	// userns is set if root in its containers is not root of the host.
	userns bool
	// podman is set if the engine is Podman, also if its client is Docker's.
	podman bool
	// gpus is its way to show GPUs of NVIDIA.
	gpus gpuWay
}

// dockerInfo has the used fields of `docker info`.
type dockerInfo struct {
	MemoryLimit, SwapLimit, CPUSet, PidsLimit bool
	SecurityOptions                           []string

	IndexServerAddress           *string
	DockerRootDir, CgroupVersion string

	gpuSupport
}

// isPodman reports whether Podman has answered Docker's client: it alone has no server of an index (podman
// pkg/api/handlers/compat/info.go: GetInfo).
func (i dockerInfo) isPodman() bool {
	return i.IndexServerAddress != nil && *i.IndexServerAddress == ""
}

// isRootless reports whether the engine runs without root: "name=rootless", or "name=userns" with userns-remap (moby
// daemon/info.go: fillSecurityOptions). Podman 4.3 does not say so, and has its files in its user's home by default.
func (i dockerInfo) isRootless() bool {
	return slices.ContainsFunc(i.SecurityOptions, func(option string) bool {
		name, _, _ := strings.Cut(option, ",")
		return name == "name=rootless" || name == "name=userns"
	}) || i.isPodman() && strings.Contains(i.DockerRootDir, "/.local/share/containers/")
}

// podmanInfo has the used fields of `podman info`.
type podmanInfo struct {
	Host struct {
		CgroupControllers []string `json:"cgroupControllers"`
		CgroupVersion     string   `json:"cgroupVersion"`
		Security          struct {
			Rootless bool `json:"rootless"`
		} `json:"security"`
	} `json:"host"`
}

// readFacts asks the engine for its facts.
func (e Runtime) readFacts(ctx context.Context) (f facts, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := e.call(ctx, "info", "--format", "{{json .}}")
	if err != nil {
		return f, e.unusable(ctx, err)
	}
	return e.parseInfo(text)
}

// parseInfo returns the facts in the engine's description of itself, which is JSON. The program docker may be
// Podman's (Debian's package podman-docker), whose description has an object "host".
func (e Runtime) parseInfo(text string) (f facts, err error) {
	var form struct{ Host json.RawMessage }
	if err = json.Unmarshal([]byte(text), &form); err == nil {
		if form.Host != nil {
			f, err = readPodmanInfo(text)
		} else {
			f, err = readDockerInfo(text)
		}
	}
	if err != nil {
		return f, fmt.Errorf("%s info: %w", e.name(), err)
	}
	return f, nil
}

// Features returns the features in the output of the engine's info as JSON.
func (e Runtime) Features(info string) (container.Engine, error) {
	f, err := e.parseInfo(info)
	return container.Engine{Podman: f.podman, UserNamespace: f.userns, Memory: f.memory, Processors: f.cpus, Processes: f.processes}, err
}

func readDockerInfo(text string) (facts, error) {
	var info dockerInfo
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return facts{}, err
	}
	f := facts{
		userns: info.isRootless(), podman: info.isPodman(),
		memory: info.MemoryLimit, swap: info.SwapLimit, cpus: info.CPUSet, processes: info.PidsLimit, gpus: gpuHost{}.way(info.gpuSupport, false),
	}
	if f.podman && f.userns { // it lists the controllers of the host, not those that it may use
		f.cpus = false
		if info.CgroupVersion == "1" {
			f.memory, f.swap, f.processes = false, false, false // it ignores limits there
		}
	}
	return f, nil
}

func readPodmanInfo(text string) (facts, error) {
	var info podmanInfo
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return facts{}, err
	}
	has := func(controller string) bool { return slices.Contains(info.Host.CgroupControllers, controller) }
	return facts{
		userns: info.Host.Security.Rootless, podman: true, memory: has("memory"), swap: has("memory") && info.Host.CgroupVersion == "v2", cpus: has("cpuset"),
		processes: has("pids"), gpus: gpuHost{}.way(gpuSupport{}, true),
	}, nil
}

// ownMemory is added to the limit for package enter, which is also in the container.
const ownMemory = 16 << 20

// ownProcesses is added to the limit for the threads of package enter.
const ownProcesses = 32

// limitOptions returns the options that give the container the limits of its caller, whose cgroup
// it is not in: the processors that this process may use, and the memory; and the limit of its processes. It omits options that the
// engine does not support, because the engine would report them on the command's standard error.
func (f facts) limitOptions(memory, processes int64, cpus string) (options []string) {
	if memory > 0 && f.memory {
		limit := strconv.FormatInt(memory+ownMemory, 10)
		options = append(options, "--memory", limit)
		if f.swap {
			options = append(options, "--memory-swap", limit) // no additional swap
		}
	}
	switch {
	case !f.processes:
	case processes > 0:
		options = append(options, "--pids-limit", strconv.FormatInt(processes+ownProcesses, 10))
	default: // Podman's default is 2048
		options = append(options, "--pids-limit", "-1")
	}
	if cpus != "" && f.cpus {
		options = append(options, "--cpuset-cpus", cpus)
	}
	return options
}

// ownCPUs lists the processors that this process may use ("0,2"), or "" if it may use all that are
// online.
func ownCPUs() string {
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	own, ownErr := affinity.Own()
	if err != nil || ownErr != nil {
		return ""
	}
	return cpuList(own, strings.TrimSpace(string(online)))
}

// cpuList lists processors, or returns "" if these are all online ones ("0-3,8").
func cpuList(own []int, online string) string {
	if list := affinity.Format(own); list != online {
		return list
	}
	return ""
}

// hadOOM asks Docker whether memory ran out in a container that is gone. Docker rounds the end of
// the time to whole seconds, so the end is a second from now. Podman records no such event.
func (r *client) hadOOM(ctx context.Context) bool {
	if r.engine.isPodman() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	output, err := r.engine.call(ctx, "events", "--since", "24h", "--until=-1s", "--filter", "container="+r.name, "--filter", "event=oom", "--format", "{{.Action}}")
	return err == nil && output != ""
}
