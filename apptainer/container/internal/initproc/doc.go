// Package initproc starts an init for a container, and is that init.
//
// An init is the first process of new user, mount and pid namespaces, in which it is root. It
// runs this program again ([Main]). All processes of the container belong to its pid namespace
// and all mounts to its mount namespace, so the kernel removes both when the init ends, for
// whatever reason. The init ends with its caller.
//
// A plain init has no namespaces of its own. It leads a session instead and adopts orphans. At
// its end it kills what is left of the session.
//
// # Between caller and init
//
//	caller                    init
//	control: Spec ──────────► starts the work that Spec names
//	control: {} ────────────► closes Stop: the work sends TERM and, later, KILL
//	control: end of file ───► the caller is gone: the init ends
//	◄────── report: Began     the command begins
//	◄────── report: Code      the command has ended, or Error says why it did not
package initproc
