// Package gpudriver finds the parts of a host's GPU driver that containers need.
//
// An image brings its toolkit (CUDA, ROCm). The driver's libraries have to match the
// kernel's module, so the container shows the host's. The package has lists of their
// names, as Apptainer has (etc/nvliblist.conf, etc/rocmliblist.conf), and looks them up in
// the dynamic linker's cache (internal/pkg/util/paths/resolve.go: Resolve). The C library
// is not among them.
//
// The search starts no program and touches no GPU. It costs a few dozen small reads.
package gpudriver
