// Package gpudriver finds what containers need of the driver of their host's
// GPUs.
//
// A program brings its toolkit (CUDA, ROCm) in its image, but the driver's
// libraries have to be those that belong to the kernel's module: they are shown
// in the container from the host. What belongs to a driver is listed by name,
// as Apptainer lists it (etc/nvliblist.conf, etc/rocmliblist.conf), and the
// names are looked up in the dynamic linker's cache
// (internal/pkg/util/paths/resolve.go: Resolve). Nothing of the C library is
// among them.
//
// Looking does not start a program and does not touch a GPU. It costs a few
// dozen small reads.
package gpudriver
