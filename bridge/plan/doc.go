// Package plan makes the bridge's decisions. It is a pure state machine, without a clock, a disk,
// Slurm or a server.
//
// A Row is one bundle that the bridge handles. News is everything that arrived about it since its last
// decision. Policy.Next takes both and returns the next row, and the effects that the bridge starts once
// that row is saved:
//
//	claiming ─► staging ─► submitting ─► queued ─► running ─► collecting ─► finalizing ─► done
//	   │           │  ▲         │           │         │            ▲            ▲
//	   │           │  └─────────┼── retry ──┴─────────┤            │            │
//	   │           │            └────────► stopping ◄─┘────────────┘            │
//	   └───────────┴──────── refused, killed, cannot be staged ─────────────────┘
//
// # Terms
//
// A bundle has one attempt at a time, numbered from 1. A submission is one attempt in Slurm; its
// submission name is the job's name. A snapshot is one complete answer of squeue. An observation is the
// part of a snapshot, or of an answer of the accounting database, that concerns one submission. To fence
// an attempt is to take its started record, so that no worker can begin it. An orphan job is a live job
// that the bridge submitted and that belongs to no row.
//
// # Promises
//
//   - A decision depends on its arguments only, so it can be replayed.
//   - Next is total: it decides every phase with all news, including states of Slurm that did not
//     exist when this was written.
//   - Effects follow from the row. After a crash the bridge decides each row anew with empty
//     news, and gets the effects that are still wanted. All effects but Submit may be repeated at
//     will. Submit is wanted once, and again only if the first one's job is proven not to exist.
//   - Missing knowledge never moves a row. A job counts as absent only if a complete snapshot, requested
//     late enough, and the accounting database both lack it, and the attempt's records show no start.
//   - A bundle's next attempt is submitted only after the last one has begun and ended, or was
//     fenced.
//   - A verdict never changes after it was reported.
//
// Each decision leaves a one-line reason in its row.
package plan
