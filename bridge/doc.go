// Package bridge turns a CodaLab server's bundles into Slurm jobs.
//
// Package plan decides; this package is the loop around it:
//
//	server ── messages ──┐                        ┌─► start_bundle, upload
//	Slurm ─── snapshot ──┤                        ├─► sbatch, scancel, sacct
//	disk ──── doorbell ──┼─► inbox ─► Step ─► ledger
//	effects ─ outcomes ──┘            │           └─► stage, close, release
//	                                  └─► reports ─► check-in
//
// Pumps bring news into the inbox. Step takes what is there, decides the rows
// that have news or are due (plan.Policy.Next), saves those that changed, and
// only then starts their effects. It waits for the ledger, and for nothing
// else. At most one effect of a kind runs for an attempt; an effect that fails
// or is lost in a crash is wanted again by the row that it was for.
//
// What the bridge needs of the world it names as small interfaces, which cmd
// fills.
//
// # Reports
//
// A check-in reports runs to the server, and the server holds it until there is
// a message. CodaLab's own server applies every report that it gets, in whatever
// state the bundle is: a report that it applies after it has acknowledged a
// verdict brings the bundle back, for ever (codalab/model/bundle_model.py:
// bundle_checkin). So the bridge keeps these rules for each run:
//
//   - A check-in reports a run only if there is something new to say of it, or if
//     the last report of a run that has not ended is 20 s old.
//   - A run is not reported again before the server has applied its last report.
//     The bridge knows that when the check-in is answered, or when the server,
//     asked for the bundle, shows what the report said.
//   - A verdict is reported once. It is reported again only if the server, asked
//     after a while, after a restart of the bridge, or after a check-in that got
//     no answer, shows that it has not got the verdict.
//   - From the moment in which an acknowledgement arrives no check-in reports the
//     run.
//
// Two check-ins that wait at the same time therefore never report the same run
// in two states, and none that waits when a verdict is acknowledged still has a
// report of that run to be applied. That is why the bridge may send a check-in
// while an earlier one is held. What remains is a check-in that failed and that
// the server applies all the same, later: package plan asks for the bundles that
// are done now and then, and reports a verdict again that was lost so.
package bridge
