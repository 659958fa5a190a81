// Package apptainerexec runs containers by a site's own Apptainer or SingularityCE.
//
// If user namespaces are allowed, Apptainer runs in an init of this program (package initproc), in
// which the calling user is root. When the init ends, the kernel ends all processes of its PID
// namespace. The init mounts the image and an overlay, as package builtin does, and gives Apptainer
// the resulting directory:
//
//	caller                         Runtime.Run
//	└─ init                        namespaces; or, if Plain, a session
//	   ├─ squashfuse_ll, overlay   where the init has namespaces
//	   └─ apptainer exec           in the directory root/; otherwise in the SIF
//	      └─ container-enter       pid 1 of the container (package enter)
//	         └─ the command
//
// If user namespaces are forbidden, Apptainer may be installed with privileges (setuid). It then
// runs as the calling user, without namespaces made by this program (Plain), and the init finds its
// processes by their session.
package apptainerexec
