// Package gpudriver finds the parts of a host's GPU driver that containers need, and reads the driver's
// list of GPUs.
//
// An image has its own toolkit (CUDA, ROCm). The driver's libraries must match the kernel's module,
// so the container shows those of the host. The package has lists of their names, like Apptainer
// (etc/nvliblist.conf, etc/rocmliblist.conf), and looks them up in the dynamic linker's cache
// (internal/pkg/util/paths/resolve.go: Resolve). The C library is not on the lists.
//
// The search starts no program and touches no GPU. It costs a few dozen small reads.
package gpudriver
