// Package apptainer brings container images to a cluster and runs them there
// without any privilege.
//
// # Images
//
// [ParseReference] reads a name as Docker does, [Registry.Resolve] turns it
// into the digest of one platform's manifest, and [Converter.Convert] writes
// that image as a SIF, the single-file format of Apptainer: the layers are
// pulled in parallel, flattened, and streamed into a squashfs that stands at
// its place in the SIF from the first byte. What the file contains depends on
// the image's digest, its architecture and [Converter.Settings] alone. What
// cannot be converted exactly is refused in words, with an [*ImageError].
//
// # Containers
//
// [Container.Run] runs a command in a SIF as an ordinary user, with a root
// file system that is writable and looks owned by root, as in Docker:
//
//	caller                         Container.Run
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
// The package leans on squashfs-tools 4.5 or newer (mksquashfs -tar) to
// convert; and on squashfuse, bubblewrap, /dev/fuse and user namespaces, with
// overlay mounts in them (Linux 5.11, RHEL 8.5), to run.
package apptainer
