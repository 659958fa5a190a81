package initproc

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// podVariable is in the environment of each container of a pod (Kubernetes pkg/kubelet/envvars: FromServices).
const podVariable = "KUBERNETES_SERVICE_HOST"

// InPod reports whether this process runs in a pod of Kubernetes. Then another pod of the same node may do what this
// one may not: the settings of the pod decide.
func InPod() bool { return podEnvironment() != nil }

// podEnvironment returns the variable by which an init knows that it runs in a pod.
func podEnvironment() []string {
	address := os.Getenv(podVariable) //nolint:forbidigo // a fact about this process's surroundings, not a setting
	if address == "" {
		return nil
	}
	return []string{podVariable + "=" + address}
}

// confinement returns the reason why the container that this process itself runs in refuses a user namespace, or nil
// if it is not at fault.
func confinement(err error) error {
	if !errors.Is(err, syscall.EPERM) {
		return nil
	}
	if isFiltered() {
		remedy := "it has to allow clone, unshare, mount and keyctl"
		if InPod() {
			remedy = "the pod needs seccompProfile: {type: Unconfined} in its securityContext, or none where the node's default is none"
		}
		return container.HostErrorf("a system call filter (seccomp) of this process forbids user namespaces: %s (%w)", remedy, err)
	}
	// user_namespaces(7): a process that maps the id 0 of the parent namespace needs CAP_SETFCAP there.
	if os.Getuid() == 0 && !mayMapRoot() {
		return container.HostErrorf("root lacks the capability SETFCAP here, without which it makes no user namespaces: it must not be dropped, or another user has to run this (%w)", err)
	}
	return nil
}

// isFiltered reports whether a filter for system calls holds for this process (proc_pid_status(5): Seccomp).
func isFiltered() bool {
	status, err := smallfile.Read("/proc/self/status")
	return err == nil && strings.Contains(string(status), "\nSeccomp:\t2\n")
}

// mayMapRoot reports whether this process has the capability SETFCAP.
func mayMapRoot() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&head, &data[0]) != nil || data[0].Effective&(1<<unix.CAP_SETFCAP) != 0
}

// procError describes the refusal of a /proc for a new PID namespace. Linux refuses it where a part of the present
// /proc is covered, because the new one would show that part (fs/namespace.c: mount_too_revealing).
func procError(err error) error {
	switch {
	case !InPod():
		return container.HostErrorf("this node does not let user namespaces mount /proc, perhaps because it is a container itself: %w", err)
	case errors.Is(err, syscall.EACCES):
		return container.HostErrorf("a security module (AppArmor or SELinux) forbids this pod to mount /proc for its containers: "+
			"under AppArmor its container needs appArmorProfile: {type: Unconfined} in its securityContext (%w)", err)
	}
	return container.HostErrorf("parts of this pod's /proc are covered, so Linux lets no container in it have a /proc of its own: "+
		"the pod needs hostUsers: false, and its container procMount: Unmasked in its securityContext (%w)", err)
}
