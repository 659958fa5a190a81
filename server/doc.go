// Package server is the bundle service. It serves CodaLab's REST API to clients and workers.
// It knows nothing of Slurm: cl-bridge is a worker to it.
//
// This package constructs the rooms of the service and routes requests to them. It admits each request,
// gives each user's changes their turn, and writes the audit log. Each route says whether it serves users
// who have not signed in, worker accounts and worker tokens (rest.Route). The rooms check the objects
// (package access).
//
//	bundles  worksheets  accounts  checkin  signin  secrets  schedule    rooms, which do not know each other
//	terminal                                                            a room that calls the routes of the others (selfcall)
//	contents                                                            the contents of bundles
//	hub      plan                                                       connected workers; decisions
//	sharing  search  present  stored  access  rest                      what several rooms need
//	store    vault  failures                                            the data, encryption; a log of errors that no caller gets
//
// Imports run downwards. A handler changes a bundle in one transaction of the store and then names it to
// the scheduler, which alone acts on changes.
package server
