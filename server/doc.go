// Package server is the bundle service. It serves CodaLab's REST API to clients and workers.
// It knows nothing of Slurm: cl-bridge is a worker to it.
//
// Package plan has the decisions: the states of a bundle and the transitions between them, which worker
// gets which run, and quotas. This package reads what they need from the store and writes what they say.
//
// A handler changes a bundle in one transaction of the store and then names it to Run by the
// method changed. Only Run acts on changes: it stages the children of a bundle, matches staged
// runs with workers, and wakes workers. Run begins with all unfinished bundles, so a crash at
// any point loses nothing. What Run cannot do, because the disk is full for example, it tries
// again at its next pass, every five seconds.
//
// # Messages to workers
//
// Package hub has the connected workers, their duties and their doorbells. The server holds a check-in
// while there is no message for the worker. While a check-in is held, CodaLab's worker starts and ends
// no runs, so the server does not hold those of a worker with a doorbell.
//
// # Permissions
//
// Root and the owner may do everything with a bundle or worksheet; others may do what groups grant
// them (package store). A bundle that a user may not read is shown as a private one, which tells
// nothing. Each route says whether it serves users who have not signed in, and worker accounts; the
// handlers check objects by readable, writable, openWorksheet and changeable. The account of a program
// that runs bundles for others has permissions on the runs that its workers have, and on their
// inputs, and on nothing else.
//
// # Quotas
//
// A user's disk_used counts what the user's bundles have. Contents that are being written are
// reserved in memory before their bytes reach the disk, so that all uploads of a user together
// stay within the quota. At the end of an upload the reservation ends and disk_used grows, as one
// step that no other upload of the user can see half done.
//
// # A disk shared with workers
//
// With Config.SharedDisk, a worker may report that it shares the store's disk. A run message
// then tells it where the contents of each parent are, and names an empty results directory
// that belongs to this assignment of the bundle. When the worker reports the end of the run,
// and has uploaded no contents, the server adopts the results: it flushes and counts what is
// in that directory and makes it the bundle's contents. Only then does it apply and
// acknowledge the report. After a crash before that point the worker reports again.
//
// # Files
//
//	server, routes, http    configuration and Run; routes; refusals, JSON, query parameters
//	auth, signin, password  tokens; sign-ins and their limits; hashes
//	workertoken             tokens of single workers, and what they allow
//	access, sharing, groups permissions; what groups may do; groups and their members
//	audit, metrics          the audit log and users' turns; what /metrics and /healthz tell
//	users, useredit         accounts; their changes
//	worksheets, worksheetitems, worksheetedit, interpretation, shown
//	                        worksheets; their items; their changes; as lines and blocks (package
//	                        interpret)
//	bundles, create, patch, delete, present, specs
//	                        routes for bundles; bundles as clients see them; names to bundles
//	search                  searches of bundles, worksheets and users (package keywords)
//	contents, blob          contents: descriptions, downloads, the store and links
//	upload, unpack, fetch   uploads, archives, uploads by URL
//	repository, gitproxy    uploads of git repositories; the proxy through which git gets them
//	quota, limits           disk quotas of uploads; used-up quotas
//	make                    bundles that the server itself makes of others
//	actions, netcat         kill and write; talks with ports of running bundles
//	pace                    slow connections; the bodies of refused requests
//	checkin, reports, reads a worker's check-ins and claims, its reports, its files
//	doorbell, workersinfo, workercode
//	                        websockets of workers; the list of workers; the download of cl-worker
//	match, planned          one pass of plan.Match; bundles and users as package plan sees them
//	changes, inspect        what Run does with changed bundles, and with those of which nothing is heard
//	shareddisk              results that workers write into the store
package server
