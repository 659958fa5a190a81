// Package container runs commands in container images, without any privilege.
//
// [Builtin] runs a command in a SIF as an ordinary user, with a root
// file system that is writable and looks owned by root, as in Docker:
//
//	caller                         Builtin.Run
//	└─ init                        Init: pid 1 of new user, mount and pid namespaces
//	   ├─ squashfuse_ll -f         the SIF's partition, mounted at lower/
//	   ├─ (overlay)                lower/ + upper/ + work/ → root/
//	   └─ bwrap                    binds, /proc, /dev, no network, fewer capabilities
//	      └─ bwrap                 pid 1 of the container
//	         └─ the command
//
// Every mount belongs to init's mount namespace and every process to its pid
// namespace, so the end of init, by whatever cause, is the end of both; and
// init ends with its caller.
//
// The package leans on squashfuse, bubblewrap, /dev/fuse and user namespaces,
// with overlay mounts in them (Linux 5.11, RHEL 8.5). Where images or overlays
// cannot be mounted, unsquashfs writes the image's files to root/ for the run
// alone, and the Exit notes why.
package container
