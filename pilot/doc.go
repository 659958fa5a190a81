// Package pilot starts workers for the staged bundles of a CodaLab server. A pilot is one such worker: a
// cl-worker that a batch system runs. It asks the server for runs itself, and ends when it has been idle
// for a while.
//
// The package has these parts:
//
//   - [Decide] is pure: from the bundles, the pilots and the server's workers it computes the number of
//     pilots to start, with the reason.
//   - [Manager] is the loop around it. A pass asks the server for staged bundles. If the answer may require
//     a new pilot, it also asks the backend for its pilots and the server for its workers.
//   - [Backend] is the batch system. Packages slurmbatch, kubernetes, awsbatch and azurebatch implement it, and
//     pass the suite of pilottest.
//
// On cl-server a [Presence] shows the manager to the server, and each pilot has a token of its own: the manager issues
// it, gives it to the backend's Start, and ends it with the pilot. A backend knows no server.
//
// The manager stores nothing on a disk. It recognizes its pilots by their names, so it may be ended and
// started at any time without an effect on them. A missing answer never counts as an answer: a manager that
// cannot see its pilots starts none.
//
// The package follows codalab/worker_manager/worker_manager.py of CodaLab.
package pilot
