// Package plan decides. It is the bridge's state machine: values in, values
// out, no clock, no disk, no Slurm, no server.
//
// A Row is one bundle in the bridge's hands. News is what arrived about it
// since it was last decided. Policy.Next turns the two into the next row and
// the effects that are to be started once that row is saved:
//
//	claiming ─► staging ─► submitting ─► queued ─► running ─► collecting ─► finalizing ─► done
//	   │           │  ▲         │           │         │            ▲            ▲
//	   │           │  └─────────┼── retry ──┴─────────┤            │            │
//	   │           │            └────────► stopping ◄─┘────────────┘            │
//	   └───────────┴──────── refused, killed, cannot be staged ─────────────────┘
//
// # What is promised
//
//   - A decision depends on its arguments only, so it can be replayed.
//   - Next is total: every phase has an answer to every news, also to states
//     of Slurm that did not exist when this was written.
//   - Effects are derived from the row. After a crash the bridge decides each
//     row anew with empty news, and gets the effects that are still wanted.
//     All effects but Submit may be repeated at will; Submit is wanted once,
//     and again only when the first one's job is proven not to exist.
//   - Missing knowledge never moves a row. A job counts as absent only when a
//     whole snapshot, asked for late enough, and the accounting database both
//     lack it, and the attempt's records show no start.
//   - A bundle's next attempt is submitted only after its last one either
//     began and ended, or was closed so that it can never begin.
//   - A verdict that was reported final never changes.
//
// Each decision leaves a one-line reason in its row.
package plan
