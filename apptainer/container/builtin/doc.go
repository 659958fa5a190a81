// Package builtin runs containers without a container engine and without privileges: with
// squashfuse and an overlay in one user namespace.
//
//	caller                         Runtime.Run
//	└─ init                        pid 1 of new user, mount and pid namespaces
//	   ├─ squashfuse_ll -f         the SIF's partition, mounted at lower/
//	   ├─ (overlay)                lower/ + upper/ + work/ → root/
//	   ├─ slirp4netns or pasta     for a private network
//	   └─ the first process        pid 1 of the container: /proc, fewer capabilities, the filter; in the private network, or without one
//	      └─ the command
//
// The init gives up the account's keyrings (package keyring) before it starts the others, which inherit a
// filter that refuses the system calls for keys. It makes the other mounts, such as binds and /dev, and package firstproc the first
// process, which installs the whole filter of package seccomp. On Linux before 5.12, and where the image is unpacked, bubblewrap
// does both with the same result: it takes longer to start than a small command runs.
//
// This needs squashfuse, bubblewrap, /dev/fuse and user namespaces, with overlay mounts in them
// (Linux 5.11, RHEL 8.5). If the image or the overlay cannot be mounted, unsquashfs unpacks the
// image for one run, and the Exit notes the reason.
//
// A caller with several containers of one image, one after another, can keep an init for them (initproc.Kept). That init and
// squashfuse stay, and each container has a mount namespace and an overlay of its own.
//
// If the user has subordinate ids (package subids), the namespace has them, and the init gives the
// command's files to the user at the end. Otherwise it has one id, that of the user, who is root in it.
package builtin
