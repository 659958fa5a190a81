// Package stocktest has a stand-in for CodaLab's own server of version 1.7.3, for tests where
// there is no Python. Package manners is the suite that both pass.
//
// Server has the manners that a worker meets, warts included. Bundles, users and groups are in
// memory, contents in a directory. It has no worksheets, searches, quotas, bundle stores, make
// bundles and cookies, and serves no archives of stored contents.
//
// # A run's way
//
//	created ─► staged ─► starting ─► preparing ─► running ─► finalizing ─► ready, failed, killed
//	             ▲ ▲         │             │          │            │              │
//	             │ └─────────┘             ▼          ▼            ▼              │ late
//	             │   not delivered       worker_offline ◄────── no run row ◄──────┘ report
//	             │                              │
//	             └── preemptible, restaged      └─► what its worker reports next
//
// Two parties change a bundle, and neither waits for the other. The manager passes over all
// bundles every half a second: it stages, offers, acknowledges and gives up. A check-in
// applies its reports as they come, whatever state a bundle is in. Then the server holds the
// check-in for five seconds, until it has one message for the worker.
//
// A run row says which worker has a run. The manager makes it when it offers the run, and
// removes it when it has acknowledged the run's end. A report that the server applies after
// that sets the bundle back to running or finalizing, but there is no row any more: the
// manager's next pass makes it worker_offline.
//
// # Messages
//
// A worker has one socket. A new check-in takes the socket over from the one before, which
// goes on to its end and answers null. The manager tries for a second to hand a message over,
// an action or a read tries for a minute. The server does not notice when the answer that
// carries a message is lost.
//
// # Time
//
// A Server reads the clock, so a test that has to wait runs in a bubble of testing/synctest
// and reaches the server by Server.Client, which needs no network. In the bubble's time
// everything takes as long as on the real server; the test itself waits for none of it.
package stocktest
