package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// ErrNamespace means that a job was running in another PID namespace of this machine, such as that
// of a container. Its processes are invisible from here, so it is unknown whether they have ended.
var ErrNamespace = errors.New("its processes cannot be seen from this PID namespace")

// CheckNamespace returns an error that wraps ErrNamespace if Open would refuse the directory for
// that reason. It changes nothing. It accepts a missing directory.
func CheckNamespace(dir string) error {
	d := records{dir: dir}
	all, err := d.load()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	boot := ""
	if err == nil {
		boot, err = thisBoot()
	}
	if err == nil {
		err = d.checkNamespace(all, boot)
	}
	if err != nil {
		return fmt.Errorf("check the jobs of a worker: %w", err)
	}
	return nil
}

// checkNamespace refuses jobs that run in another PID namespace since the machine's last boot.
func (d records) checkNamespace(all []record, boot string) error {
	machine, here, _ := strings.Cut(boot, " ")
	for _, r := range all {
		on, there, _ := strings.Cut(r.Boot, " ")
		if r.State == sbatch.StateRunning && on == machine && there != here {
			return fmt.Errorf("job %s was started in %s, this is %s: %w; start the worker where it was, or remove %s if the job runs no more",
				r.ID, there, here, ErrNamespace, d.path(r.ID)+recordSuffix)
		}
	}
	return nil
}

// thisBoot identifies the machine's last boot and the PID namespace, with a space between them. A
// reboot ends all earlier processes; another namespace may only hide them (proc_sys_kernel(5):
// boot_id, pid_namespaces(7)).
func thisBoot() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + " " + namespace, nil
}
