// Package stocktest has a stand-in for CodaLab's own server of version 1.7.3, for tests without
// Python. Both servers pass the suite of manners in its tests.
//
// Server treats a worker as the original does, faults included. Bundles and users are in
// memory, contents in a directory. It has no groups, worksheets, searches, removal of bundles,
// quotas, bundle stores, make bundles or cookies, and serves no archives of stored contents.
//
// # States of a run
//
//	created ─► staged ─► starting ─► preparing ─► running ─► finalizing ─► ready, failed, killed
//	             ▲ ▲         │             │          │            │              │
//	             │ └─────────┘             ▼          ▼            ▼              │ late
//	             │   not delivered       worker_offline ◄────── no run row ◄──────┘ report
//	             │                              │
//	             └── preemptible, restaged      └─► what its worker reports next
//
// The manager and check-ins change bundles independently. Every half a second the manager
// stages, offers, acknowledges and gives up bundles. A check-in applies its reports at once, in
// any state of the bundles. Then the server holds it until there is one message for the worker,
// for at most five seconds.
//
// A run row names the worker that has a run. The manager creates it when it offers the run, and
// removes it when it has acknowledged the run's end. A later report sets the bundle back to
// running or finalizing, but without a row, so the manager's next pass makes it worker_offline.
//
// # Messages
//
// A worker has one socket. A new check-in takes the socket from the previous one, which waits
// to its end and answers null. The manager tries for a second to deliver a message, an action
// or a read tries for a minute. The server does not notice the loss of an answer with a
// message.
//
// # Time
//
// A Server uses the clock, with the real server's times. So a test runs in a bubble of
// testing/synctest, which takes no real time, and reaches the server by Server.Client, which
// needs no network.
package stocktest
