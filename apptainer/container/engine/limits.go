package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// facts are an engine's features that its options depend on.
type facts struct {
	// memory, swap and cpus are set if it can limit these.
	memory, swap, cpus bool
	// gpus is its way to show GPUs of NVIDIA.
	gpus gpuWay
}

// dockerInfo has the used fields of `docker info`.
type dockerInfo struct {
	MemoryLimit, SwapLimit, CPUSet bool

	gpuSupport
}

// podmanInfo has the used fields of `podman info`.
type podmanInfo struct {
	Host struct {
		CgroupControllers []string `json:"cgroupControllers"`
		CgroupVersion     string   `json:"cgroupVersion"`
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
	if e.isPodman() {
		f, err = readPodmanInfo(text)
	} else {
		f, err = readDockerInfo(text)
	}
	if err != nil {
		return f, fmt.Errorf("%s info: %w", e.name(), err)
	}
	return f, nil
}

func readDockerInfo(text string) (facts, error) {
	var info dockerInfo
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return facts{}, err
	}
	return facts{memory: info.MemoryLimit, swap: info.SwapLimit, cpus: info.CPUSet, gpus: gpuHost{}.way(info.gpuSupport, false)}, nil
}

func readPodmanInfo(text string) (facts, error) {
	var info podmanInfo
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return facts{}, err
	}
	has := func(controller string) bool { return slices.Contains(info.Host.CgroupControllers, controller) }
	return facts{memory: has("memory"), swap: has("memory") && info.Host.CgroupVersion == "v2", cpus: has("cpuset"), gpus: gpuHost{}.way(gpuSupport{}, true)}, nil
}

// ownMemory is added to the limit for package enter, which is also in the container.
const ownMemory = 16 << 20

// limitOptions returns the options that give the container the limits of its caller, whose cgroup
// it is not in: the processors that this process may use, and the memory. It omits options that the
// engine does not support, because the engine would report them on the command's standard error.
func (f facts) limitOptions(memory int64, cpus string) (options []string) {
	if memory > 0 && f.memory {
		limit := strconv.FormatInt(memory+ownMemory, 10)
		options = append(options, "--memory", limit)
		if f.swap {
			options = append(options, "--memory-swap", limit) // no additional swap
		}
	}
	if cpus != "" && f.cpus {
		options = append(options, "--cpuset-cpus", cpus)
	}
	return options
}

// ownCPUs lists the processors that this process may use ("0,2"), or "" if it may use all that are
// online.
func ownCPUs() string {
	var set unix.CPUSet
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil || unix.SchedGetaffinity(0, &set) != nil {
		return ""
	}
	return cpuList(set, strings.TrimSpace(string(online)))
}

// cpuList lists the processors of a set, or "" if the set has all online ones ("0-3,8").
func cpuList(set unix.CPUSet, online string) string {
	var own []string
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			own = append(own, strconv.Itoa(cpu))
		}
	}
	all := 0
	for part := range strings.SplitSeq(online, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		if err != nil {
			return ""
		}
		all += to - from + 1
	}
	if len(own) >= all {
		return ""
	}
	return strings.Join(own, ",")
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
