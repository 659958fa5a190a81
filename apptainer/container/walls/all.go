package walls

import (
	"slices"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// All lists the walls.
func All() []Wall {
	return slices.Concat(neighbours(), networks(), privileges(), inheritance(), resources())
}

const (
	mountNamespace     = "a mount namespace with a root of its own"
	networkNamespace   = "a network namespace, with a filter ([The filter of the network](#the-filter-of-the-network)); with `network = \"host\"`, none"
	boundingSet        = "the bounding set, which the container's first process drops"
	noNewPrivs         = "`no_new_privs`, which the container's first process sets"
	rootOutside        = "is root of the node if it leaves the container"
	loopbackReached    = "can reach the node's loopback interface by a network that it requested"
	neighboursPorts    = "can connect to ports of other bundles if both requested a network"
	metadata           = "can ask a cloud's metadata service for the node's credentials, if it has a network"
	forkBomb           = "can have as many processes as the account may"
	uncounted          = "can write as much as it likes into the container's root, where the engine has the files"
	uncountedProcesses = "on Linux before 5.14, or if the worker runs as root of the node"
	onNode             = "can write as much as it likes into the container's root, on the node's disk"
	podRoot            = "is root of the node if it leaves the container, if its worker is root"
	podNetwork         = "can connect to other pods and to all that the cluster lets it, also if it requested no network"
	podMetadata        = "can ask a cloud's metadata service for the node's credentials"
	noPolicy           = "unless a NetworkPolicy of the site forbids it"
	ofNode             = "the node's container runtime"
	noLimitBehind      = "if the engine cannot limit it, as a Podman without root behind the program docker"
	noLimit            = "if Podman cannot limit it, as without root on cgroups v1"
)

// docker and podman return conditions for a host whose Docker or Podman is known to have a feature.
func docker(has func(container.Engine) bool) func(container.Host) bool {
	return func(h container.Host) bool { return h.Docker.Engine != nil && has(*h.Docker.Engine) }
}

func podman(has func(container.Engine) bool) func(container.Host) bool {
	return func(h container.Host) bool { return h.Podman.Engine != nil && has(*h.Podman.Engine) }
}

func hasUserNamespace(e container.Engine) bool { return e.UserNamespace }

// limited returns the weaknesses of engines that cannot set a limit. A Docker of unknown features can.
func limited(clause string, can func(container.Engine) bool) map[Way]Weakness {
	return map[Way]Weakness{
		Docker: {Clause: clause, If: noLimitBehind, Absent: func(h container.Host) bool { return h.Docker.Engine == nil || can(*h.Docker.Engine) }},
		Podman: {Clause: clause, If: noLimit, Absent: podman(can)},
	}
}

// boundsProcesses is the condition of a host whose kernel counts the processes of a container.
func boundsProcesses(h container.Host) bool { return h.Processes.Lack == "" }

// neighbours are the walls between a command and other bundles or programs of the node.
func neighbours() []Wall {
	return []Wall{
		{
			Name: "processes", Keeps: "see, signal or trace a process outside",
			Made: "a PID namespace",
		},
		{
			Name: "files", Keeps: "open a file that is neither its image's, nor its own, nor a dependency's",
			Made: mountNamespace,
		},
		{
			Name: "dependencies", Keeps: "change a dependency",
			Made:  "read-only mounts; no capability and no system call to mount",
			Tests: []string{"TestFidelityBindsShowTheHostsFilesAndNoMoreThanAsked"},
		},
		{
			Name: "shared memory", Keeps: "open a file in another /dev/shm",
			Made: "a tmpfs of its own",
		},
		{
			Name: "System V IPC", Keeps: "attach another bundle's segment of shared memory",
			Made: "an IPC namespace",
		},
		{
			Name: "message queues", Keeps: "open another bundle's POSIX message queue",
			Made: "an IPC namespace",
		},
		{
			Name: "abstract sockets", Keeps: "connect to a Unix socket without a file",
			Made: networkNamespace, Others: otherNetworks(),
		},
		{
			Name: "sockets in files", Keeps: "connect to a Unix socket in another /tmp",
			Made: mountNamespace,
		},
		{
			Name: "ports", Keeps: "connect to a port of localhost outside, or take the port that another bundle needs",
			Made: networkNamespace, Others: otherNetworks(),
		},
		{
			Name: "metadata services", Keeps: "ask a cloud's metadata service for the node's credentials",
			Made: networkNamespace, Others: otherNetworks(),
			Weaker: map[Way]Weakness{Docker: {Clause: metadata}, Podman: {Clause: metadata}, Kubernetes: {Clause: podMetadata, If: noPolicy}},
			Tests:  []string{"TestNetworkReachesOtherMachinesOnly"},
		},
		{
			Name: "keys", Keeps: "use the account's keys in the kernel",
			Made:   "the filter of system calls; a session keyring of its own",
			Others: map[Way]string{Docker: "the filter of system calls", Podman: "the filter of system calls", Kubernetes: "the filter of system calls"},
			Tests:  []string{"TestFidelityKeysOfTheAccountAreOutOfReach"},
		},
	}
}

// otherNetworks are the ways whose networks this project does not make.
func otherNetworks() map[Way]string {
	const engines = "a network namespace, and the engine's own rules; with `network = \"host\"`, none"
	return map[Way]string{
		Setuid: "a network namespace without a network; with `network = \"host\"`, none", Docker: engines, Podman: engines,
		Kubernetes: "the pod's network namespace",
	}
}

// networks are the walls around a command that requested a network, and has one of its own.
func networks() []Wall {
	return []Wall{
		{
			Name: "loopback interface", Keeps: "reach the node's loopback interface by a network that it requested",
			Made: "the filter of that network",
			Others: map[Way]string{
				Setuid: "no network", Docker: "the node's kernel, which drops such packets of a bridge",
				Podman:     "the same with root; without root, nothing",
				Kubernetes: "the pod's network namespace",
			},
			Weaker: map[Way]Weakness{
				Docker: {Clause: loopbackReached, If: "if the program docker is or finds a Podman without root", Absent: func(h container.Host) bool {
					e := h.Docker.Engine
					return e == nil || !e.Podman || !e.UserNamespace
				}},
				Podman: {
					Clause: loopbackReached, If: "if Podman runs without root, with slirp4netns or a pasta before 2024",
					Absent: podman(func(e container.Engine) bool { return !e.UserNamespace }),
				},
			},
			Tests: []string{
				"TestPrivateNetworkTakesNoPacketToTheHostItself", "TestNetworkOfDockerReachesOtherMachinesAndNotTheNodesOwnServices",
				"TestNetworkOfPodmanWithoutRootIsAsStrongAsItsWallSays",
			},
		},
		{
			Name: "ports of bundles", Keeps: "connect to a port of another bundle",
			Made:   "a network namespace, into which the forwarder carries no connection",
			Others: map[Way]string{Setuid: "no network", Docker: "none among bundles with a network", Podman: "the same with root; without root, as with builtin", Kubernetes: "the cluster's own rules"},
			Weaker: map[Way]Weakness{
				Docker:     {Clause: neighboursPorts, If: "unless Docker has `icc = false`", Absent: docker(func(e container.Engine) bool { return e.Podman && e.UserNamespace })},
				Podman:     {Clause: neighboursPorts, If: "if Podman runs as root", Absent: podman(hasUserNamespace)},
				Kubernetes: {Clause: podNetwork, If: noPolicy},
			},
			Tests: []string{"TestBundlesInOneNetworkOfAnEngineReachEachOther"},
		},
	}
}

// privileges are the walls between a command and the machine.
func privileges() []Wall {
	return []Wall{
		{
			Name: "users", Keeps: "act outside as another user than the account, or one of its subordinate ids",
			Made:   "a user namespace",
			Others: map[Way]string{Setuid: "a user namespace, or the account's own id", Docker: "none", Kubernetes: "none"},
			Weaker: map[Way]Weakness{
				Docker:     {Clause: rootOutside, If: "if Docker runs as root without userns-remap", Absent: docker(hasUserNamespace)},
				Podman:     {Clause: rootOutside, If: "if Podman runs as root", Absent: podman(hasUserNamespace)},
				Kubernetes: {Clause: podRoot},
			},
		},
		{
			Name: "capabilities", Keeps: "use another capability than a container of Docker",
			Made:   "the permitted set, from which the first process, or bubblewrap, takes the others; no new privileges",
			Others: map[Way]string{Apptainer: boundingSet, Setuid: boundingSet, Docker: "the engine", Podman: "the engine", Kubernetes: ofNode},
		},
		{
			Name: "new privileges", Keeps: "gain a privilege by a setuid program",
			Made:   "`no_new_privs`, which the init sets",
			Others: map[Way]string{Apptainer: noNewPrivs, Setuid: noNewPrivs, Docker: noNewPrivs, Podman: noNewPrivs, Kubernetes: noNewPrivs},
		},
		{
			Name: "system calls", Keeps: "make a system call that Docker refuses",
			Made:   "the filter above, in the container's first process and in the command",
			Others: map[Way]string{Docker: "the filter above, and the engine's own", Podman: "the filter above, and the engine's own", Kubernetes: "the filter above, and RuntimeDefault of the node"},
			Tests:  []string{"TestFidelityCallsThatDockerRefusesAreRefused"},
		},
		{
			Name: "devices", Keeps: "open a device of the node that is not the bundle's",
			Made:   "a user namespace, in which no device can be made; mounts with nodev",
			Others: map[Way]string{Docker: "the devices cgroup", Kubernetes: "the devices cgroup"},
		},
		{
			Name: "settings", Keeps: "change a setting in /proc/sys or /sys",
			Made: "read-only mounts",
		},
		{
			Name: "cgroups", Keeps: "leave its cgroup, or end or limit the processes of another",
			Made: "read-only mounts",
		},
		{
			Name: "the kernel's own files", Keeps: "read files about the whole machine that Docker hides, such as /proc/keys and /sys/firmware",
			Made: "empty mounts over them",
		},
	}
}

// inheritance are the walls between a command and its caller.
func inheritance() []Wall {
	return []Wall{
		{
			Name: "terminal", Keeps: "use its caller's terminal",
			Made: "a session of its own",
		},
		{
			Name: "descriptors", Keeps: "use a file that its caller has open",
			Made: "close-on-exec on all descriptors but the standard ones",
		},
		{
			Name: "environment", Keeps: "read its caller's environment",
			Made: "a new environment",
		},
		{
			Name: "results", Keeps: "give others the account's rights by a setuid program among its results, or a device to those who open them",
			Made:  "directories closed to others; collecting takes the bits, and removes devices",
			Tests: []string{"TestResultsOnADiskGiveNobodyTheRightsOfTheirOwner", "TestDevicesAreNoResults"},
		},
		{
			Name: "leftovers", Keeps: "leave a process, a mount or a container behind",
			Made:   "the end of the PID namespace; the scratch is removed",
			Others: map[Way]string{Docker: "the engine removes the container", Podman: "the engine removes the container", Kubernetes: "the kubelet removes the container"},
			Tests:  []string{"TestFidelityKillingAnyPartLeavesNoProcessAndNoMount", "TestFidelityBackgroundProcessesEndWithTheCommand"},
		},
	}
}

// resources are the walls around a command's use of the node.
func resources() []Wall {
	return []Wall{
		{
			Name: "memory", Keeps: "use more memory than it requested",
			Made: "the job's cgroup; without one, the worker measures each second",
			Others: map[Way]string{
				Docker: "the container's cgroup",
				Podman: "the container's cgroup", Kubernetes: "the container's cgroup",
			},
			Weaker: limited("can use more memory than it requested, until the worker measures it", func(e container.Engine) bool { return e.Memory }),
			Tests: []string{
				"TestMemoryLimitOfTheJobIsSaidInASentence", "TestMemoryLimitHoldsWithoutCgroups", "TestMemoryLimitCountsFilesInMemory",
				"TestOnlyAContainerThatRanOutOfMemoryIsSaidToHave",
			},
		},
		{
			Name: "number of processes", Keeps: "have more processes than `max_processes`",
			Made:   "RLIMIT_NPROC in user namespaces ([Processes](#processes))",
			Others: map[Way]string{Setuid: "none", Docker: "`--pids-limit`", Podman: "`--pids-limit`", Kubernetes: "none"},
			Weaker: map[Way]Weakness{
				Builtin:    {Clause: forkBomb, If: uncountedProcesses, Absent: boundsProcesses},
				Apptainer:  {Clause: forkBomb, If: uncountedProcesses, Absent: boundsProcesses},
				Setuid:     {Clause: forkBomb},
				Docker:     limited(forkBomb, func(e container.Engine) bool { return e.Processes })[Docker],
				Podman:     limited(forkBomb, func(e container.Engine) bool { return e.Processes })[Podman],
				Kubernetes: {Clause: "can have as many processes as the kubelet allows to a pod (`podPidsLimit`)"},
			},
			Tests: []string{"TestFidelityForkBombEndsAtTheLimitOfProcesses", "TestRunHasNoMoreProcessesThanItsQueueAllows"},
		},
		{
			Name: "disk", Keeps: "keep more on disks than it requested",
			Made:   "the worker measures while the command runs, and at its end",
			Weaker: map[Way]Weakness{Docker: {Clause: uncounted}, Podman: {Clause: uncounted}, Kubernetes: {Clause: onNode}},
			Tests:  []string{"TestDiskLimitCountsWhatTheCommandHides", "TestDiskLimitIsJudgedAtTheEnd"},
		},
		{
			Name: "processors", Keeps: "use a processor that is not the job's",
			Made:   "the job's cgroup, or the affinity of the worker",
			Others: map[Way]string{Docker: "the container's cgroup", Podman: "the container's cgroup", Kubernetes: "the container's cgroup"},
			Weaker: limited("can use all processors of the node", func(e container.Engine) bool { return e.Processors }),
			Tests:  []string{"TestEnginesContainerGetsTheProcessorsOfItsCaller"},
		},
		{
			Name: "priority", Keeps: "take a higher priority, or real time",
			Made:   "a user namespace, whose capabilities do not count for this",
			Others: map[Way]string{Docker: "no CAP_SYS_NICE", Kubernetes: "no CAP_SYS_NICE"},
		},
	}
}
