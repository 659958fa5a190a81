// Package bridge turns a CodaLab server's bundles into Slurm jobs.
//
// Package plan decides; this package is the loop around it:
//
//	server ── messages ──┐                        ┌─► start_bundle, upload
//	Slurm ─── snapshot ──┤                        ├─► sbatch, scancel, sacct
//	disk ──── doorbell ──┼─► inbox ─► Step ─► ledger
//	effects ─ outcomes ──┘            │           └─► stage, fence, release
//	                                  └─► reports ─► check-in
//
// Pumps put news into the inbox. Step empties it, decides the rows that have news or are due
// (plan.Policy.Next), saves the rows that changed, and only then starts their effects. It waits
// for the ledger and for nothing else. At most one effect of a kind runs for an attempt. One
// scancel or sacct serves many rows. If an effect fails, or a crash cuts it short, its row wants it
// again.
//
// The package names what it needs of the world as small interfaces, which cmd fills.
//
// # Reports
//
// A check-in reports runs to the server, and the server holds it until there is a message.
// CodaLab's own server applies every report that it gets, in any state of the bundle: a report
// that it applies after it has acknowledged a verdict brings the bundle back, for good
// (codalab/model/bundle_model.py: bundle_checkin). So the bridge keeps these rules for each run:
//
//   - A check-in reports a run only if there is something new, or if the last report of a run
//     that has not ended is 20 s old.
//   - At most one unanswered check-in reports the run. The bridge reports it again when that
//     check-in was answered or has failed, or when the server, asked for the bundle, shows what
//     the report said. If the server cannot show that, a new state makes the bridge send another
//     check-in, which ends the first one at our server.
//   - A verdict is reported once. The bridge asks the server for the bundle if no acknowledgement
//     comes, after a restart, and after a check-in that failed. It reports the verdict again if
//     the server shows that it has not got it, or has lost the results.
//   - Once an acknowledgement has arrived, no check-in reports the run.
//   - A check-in has at most 512 KiB of reports. They go in this order: verdicts; new states; runs
//     that were reported 20 s ago or more, the oldest report first; new sentences. Verdicts and new
//     states use at most half of the room while old reports need the rest. The next check-in, which
//     follows at once, has what found no room.
//   - If the server refuses a check-in as too large (413), it has applied none of the reports. The
//     bridge then halves the room. It also halves the room after a check-in that took 20 s, and
//     doubles it again while the server is quick.
//   - While the oldest report of a live run is more than 40 s old, the bridge asks for no bundles.
//
// So the bridge may send a check-in while the server holds an earlier one: the two never report
// a run in two states, and when a verdict is acknowledged, no held check-in has a report of that
// run which the server may still apply. One danger remains: the server may later apply the
// reports of a check-in that has failed. Package plan therefore asks now and then for the
// bundles that are done, and reports the verdict of one that came back.
package bridge
