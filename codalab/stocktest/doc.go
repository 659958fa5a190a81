// Package stocktest has a stand-in for CodaLab's own server of version 1.7.3,
// for tests where there is no Python. Package manners is the suite that both
// pass.
//
// Server has the manners that a worker meets, warts included: it is no server
// that one would want. Bundles, users and groups are in memory, contents in a
// directory. What a worker has no business with (worksheets but one, searches,
// bundle stores, make bundles, cookies) is missing.
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
// Two parties change a bundle, and neither waits for the other. The manager
// passes over all bundles every half a second: it stages, offers, acknowledges
// and gives up. A check-in applies its reports as they come, whatever state a
// bundle is in, and is then held for five seconds for one message.
//
// A run row says which worker has a run. The manager makes it when it offers
// the run and removes it when the run's end was acknowledged, so that a report
// that is applied after that brings back a run which nobody has: the next pass
// finds no row and says worker_offline.
//
// # Messages
//
// A worker has one socket. A check-in that begins takes the socket over from
// the one before, which goes on to its end and answers null. The manager tries
// to hand a message over for a second, an action or a read for a minute.
// Nobody notices when the answer that carries a message is lost.
//
// # Time
//
// A Server reads the clock, so a test that has to wait runs in a bubble of
// testing/synctest and reaches the server by Server.Client, which needs no
// network. Everything takes the time there that it takes on the real server,
// and none of it is waited for.
package stocktest
