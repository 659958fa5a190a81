package gpudriver

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// moduleVersion matches the version in NVIDIA's line about its kernel module: that of the closed one, "NVRM version:
// NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 …", and that of the open one, "NVRM version: NVIDIA UNIX Open
// Kernel Module for x86_64  560.35.03  Release Build  (…)".
var moduleVersion = lazyregexp.New(`Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)`)

// ModuleVersion returns the version of NVIDIA's kernel module on the host in root, or "" if none is loaded.
func ModuleVersion(root string) string {
	if text, err := os.ReadFile(filepath.Join("/", root, "sys/module/nvidia/version")); err == nil {
		return strings.TrimSpace(string(text))
	}
	text, err := os.ReadFile(filepath.Join("/", root, "proc/driver/nvidia/version"))
	if err != nil {
		return ""
	}
	if m := moduleVersion().FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}

// Version returns the version of the driver's libcuda.so.1, whose file has it in its name, or "" if there is no such
// library or its name has no version.
func (d Driver) Version() string {
	const soname = "libcuda.so."
	for _, lib := range d.Libraries {
		if lib.Name != soname+"1" {
			continue
		}
		file, err := filepath.EvalSymlinks(lib.Path)
		if err != nil {
			return ""
		}
		version, ok := strings.CutPrefix(filepath.Base(file), soname)
		if ok && strings.Contains(version, ".") {
			return version
		}
	}
	return ""
}
