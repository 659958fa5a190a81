// Package container runs commands in container images, without any privilege.
//
// A [Container] says what is run. Three types say how, and promise the same:
// [Builtin] needs no container engine; [Apptainer] has a site's Apptainer or
// SingularityCE set the container up, and [Engine] Docker or Podman. [Choose]
// picks one for a [Host], and [Runtimes] runs a container by the one picked.
// docs/containers.md has what differs between them.
//
// # The built-in way
//
// It runs a command in a SIF as an ordinary user, with a root file system that
// is writable and looks owned by root, as in Docker:
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
// Containers that share an image ([Images]) have squashfuse below an init of its
// own, which hands each a mount that is attached nowhere yet:
//
//	caller
//	├─ init                        serves one image
//	│  └─ squashfuse_ll -f
//	├─ init                        of each container: attaches its mount at lower/
//	│  └─ bwrap …
//	└─ init …
//
// This leans on squashfuse, bubblewrap, /dev/fuse and user namespaces,
// with overlay mounts in them (Linux 5.11, RHEL 8.5). Where images or overlays
// cannot be mounted, unsquashfs writes the image's files to root/ for the run
// alone, and the Exit notes why.
//
// # The others
//
// They have programs of their own for the set-up, and bring this one in as the
// container's first process, which makes the inside the same everywhere:
//
//	caller                         Apptainer.Run
//	└─ init                        namespaces as above; or a subreaper and a session
//	   ├─ squashfuse_ll, overlay   as above, where init has mounts of its own
//	   └─ apptainer exec           in the directory root/; else in the SIF
//	      └─ container-enter       Enter: pid 1 of the container
//	         └─ the command
//
//	caller                         Engine.Run
//	└─ docker run, podman run      attached, in the engine's place
//	   ┆ container-enter           Enter, a child of the engine's
//	   ┆ └─ the command
//
// Enter reads what to run from its standard input, which stays open as long as
// its caller lives, and reports in a file beside the caller. Where init has no
// namespaces of its own ([Apptainer].Plain) the session that it leads is what
// ends with it.
package container
