package walls_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/walls"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
)

func TestWeakerWallsAreThoseOfTheInstallation(t *testing.T) {
	t.Parallel()
	const (
		loopback   = "can reach the node's loopback interface by a network that it requested"
		neighbours = "can connect to ports of other bundles if both requested a network"
		root       = "is root of the node if it leaves the container"
		metadata   = "can ask a cloud's metadata service for the node's credentials, if it has a network"
		memory     = "can use more memory than it requested, until the worker measures it"
		processes  = "can have as many processes as the account may"
		disk       = "can write as much as it likes into the container's root, where the engine has the files"
		processors = "can use all processors of the node"
	)
	for name, tt := range map[string]struct {
		choice container.Choice
		engine *container.Engine
		want   []string
	}{
		"builtin, uncounted":       {container.Choice{Runtime: runtimes.Builtin}, nil, []string{processes}},
		"Apptainer":                {container.Choice{Runtime: runtimes.Apptainer}, nil, nil},
		"Apptainer, uncounted":     {container.Choice{Runtime: runtimes.Apptainer}, nil, []string{processes}},
		"SingularityCE, uncounted": {container.Choice{Runtime: runtimes.Singularity}, nil, []string{processes}},
		"builtin":                  {container.Choice{Runtime: runtimes.Builtin}, nil, nil},
		"Apptainer, setuid":        {container.Choice{Runtime: runtimes.Apptainer, Plain: true}, nil, []string{processes}},
		"Docker":                   {container.Choice{Runtime: runtimes.Docker}, &container.Engine{Memory: true, Processors: true, Processes: true}, []string{metadata, neighbours, root, disk}},
		"Docker without root":      {container.Choice{Runtime: runtimes.Docker}, &container.Engine{UserNamespace: true, Memory: true, Processors: true, Processes: true}, []string{metadata, neighbours, disk}},
		"Docker, weak":             {container.Choice{Runtime: runtimes.Docker}, &container.Engine{UserNamespace: true}, []string{metadata, neighbours, memory, processes, disk, processors}},
		"Docker, a Podman":         {container.Choice{Runtime: runtimes.Docker}, &container.Engine{Podman: true, UserNamespace: true}, []string{metadata, loopback, memory, processes, disk, processors}},
		"Docker, unknown":          {container.Choice{Runtime: runtimes.Docker}, nil, []string{metadata, neighbours, root, disk}},
		"Kubernetes": {container.Choice{Runtime: runtimes.Kubernetes}, nil, []string{
			"can ask a cloud's metadata service for the node's credentials", "can connect to other pods and to all that the cluster lets it, also if it requested no network",
			"is root of the node if it leaves the container, if its worker is root", "can have as many processes as the kubelet allows to a pod (`podPidsLimit`)",
			"can write as much as it likes into the container's root, on the node's disk",
		}},
		"Podman as root":         {container.Choice{Runtime: runtimes.Podman}, &container.Engine{Memory: true, Processors: true, Processes: true}, []string{metadata, neighbours, root, disk}},
		"Podman with cgroups v1": {container.Choice{Runtime: runtimes.Podman}, &container.Engine{UserNamespace: true}, []string{metadata, loopback, memory, processes, disk, processors}},
		"Podman with cgroups v2": {container.Choice{Runtime: runtimes.Podman}, &container.Engine{UserNamespace: true, Memory: true, Processors: true, Processes: true}, []string{metadata, loopback, disk}},
	} {
		host := container.Host{Docker: container.Finding{Engine: tt.engine}, Podman: container.Finding{Engine: tt.engine}}
		if strings.Contains(name, "uncounted") {
			host.Processes.Lack = "the kernel is old"
		}
		if diff := cmp.Diff(tt.want, walls.Weaker(tt.choice, host)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
