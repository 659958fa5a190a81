package initproc

import (
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/seccomp"
)

// Debian's apt downloads as the user _apt, and checks that it is that user
// (apt-pkg/contrib/fileutl.cc: DropPrivileges). Where root is emulated, no process becomes another
// user. With this setting apt downloads as root (hpc/charliecloud, lib/force.py).
const (
	aptConfigDir = "/etc/apt/apt.conf.d"
	aptConfig    = "99-one-user-id.conf"
	aptSetting   = "// This container has only one user id.\nAPT::Sandbox::User \"root\";\n"
)

// setAptUser makes the image's apt usable if the command's root is emulated. If that fails, apt gives
// the reason itself.
func setAptUser() {
	if !isDir(filepath.Join(RootDir, aptConfigDir)) || seccomp.OnlyRoot() != seccomp.Root { // the first is quicker than ResolveInRoot
		return
	}
	if dir, err := ResolveInRoot(aptConfigDir); err == nil && isDir(filepath.Join(RootDir, dir)) {
		_ = writeInRoot(filepath.Join(dir, aptConfig), []byte(aptSetting))
	}
}

// SetAptUserInside is setAptUser for the root of this process, with emulated root.
func SetAptUserInside() {
	if isDir(aptConfigDir) {
		_ = os.WriteFile(filepath.Join(aptConfigDir, aptConfig), []byte(aptSetting), 0o644) //nolint:gosec // as the image's other files there
	}
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}
