// Package initproc starts an init for a container, and is that init. It also makes the container's
// root file system, and finds the host's programs for both.
//
// An init is the first process of new user, mount and PID namespaces, in which it is root. It runs
// this program again ([Main]). All processes of the container belong to its PID namespace and all
// mounts to its mount namespace, so the kernel removes both when the init ends for any reason. The
// init ends with its caller.
//
// A plain init has no namespaces of its own. It leads a session instead and adopts orphans. At its
// end it kills the rest of the session.
//
// # Between caller and init
//
//	caller                    init
//	control: Spec ──────────► starts the work that Spec names
//	control: {} ────────────► closes Stop: the work sends TERM and, later, KILL
//	control: end of file ───► the caller is gone: the init ends
//	◄────── report: Began     the command begins
//	◄────── report: Code      the command has ended, or Error has the reason of a failure
//	◄────── report: Note      with subordinate ids: the user owns the command's files
//
// A keeper is an init that runs several containers of one image, one after another (Kept). It gets their orders, with the files for
// their output, on a socket, and reports the begin and the end of each as above.
//
// # The root
//
// The init works in its private directory:
//
//	lower/  the image: squashfuse mounts the SIF's partition here
//	upper/  the command's changes to it
//	work/   overlayfs's own
//	root/   the two together, the container's root; or the unpacked image
//	shm/    a tmpfs, /dev/shm inside
//	secure/ mounts of the SIF and of exact binds: another user cannot replace these
//	network the private network's namespace, mounted
//
// A keeper's containers have one overlay as their root, as long as they do not change it (keptRoot). It is at root/, too, and has three
// layers:
//
//	lower/          the image
//	upper/          the keeper's changes to it, the same for all its containers, such as /etc/hosts
//	written/upper/  the changes of the present container, with written/work/ of overlayfs; between two containers, empty mount points
//
// If a node does not let ordinary users mount the image, or an overlay over it, unsquashfs unpacks
// the image to root/ for one run. That takes seconds and room on the disk.
package initproc
