// Package report decides which runs a check-in reports to the server, and notes what proves that the
// server has a report. It is pure: the time is an argument, and its caller sends the check-ins.
//
// A check-in reports runs, and the server holds it until there is a message. CodaLab's own server applies
// every report that it gets, in any state of the bundle: a report that it applies after it has acknowledged
// a verdict brings the bundle back, for good (codalab/model/bundle_model.py: bundle_checkin). So these rules
// hold for each run:
//
//   - A check-in reports a run only if there is something new, or if the last report of a run that has not
//     ended is 20 s old.
//   - At most one unanswered check-in carries a report of the run. The run is reported again when that
//     check-in was answered or has failed, or when the server, asked for the bundle, shows what the report
//     said. If the server cannot show that, a new state calls for another check-in, which ends the first one
//     at our server.
//   - A verdict is reported once. The bridge asks the server for the bundle if no acknowledgement comes,
//     after a restart, and after a check-in that failed. It reports the verdict again if the server shows
//     that it has not got it, or has lost the results.
//   - Once an acknowledgement has arrived, no check-in reports the run.
//   - A check-in has at most 512 KiB of reports. They go in this order: verdicts; new states; runs that were
//     reported 20 s ago or more, the oldest report first; new sentences. Verdicts and new states use at most
//     half of the room while old reports need the rest: each second check-in, where there is room for one report
//     alone. The next check-in, which follows at once, has the reports that found no room. A run whose report may
//     be lost counts as reported when it was before that. If the next report may be lost too, the run waits for
//     its turn: else the same runs would go first for as long as the answers are lost.
//   - If the server refuses a check-in as too large (413), it has applied none of the reports: the room is
//     halved. The room is also halved after a check-in that took 20 s, and doubled again while the server is
//     quick.
//   - While the oldest report of a live run is more than 40 s old, the bridge asks for no bundles ([Book.ReportsLate]).
//
// So the bridge may send a check-in while the server holds an earlier one: the two never report a run in two
// states, and once a verdict is acknowledged, the server can apply no report of that run from a held check-in
// any more. One danger remains: the server may later apply the reports of a check-in that has failed. Package
// plan therefore asks from time to time for the bundles that are done, and reports the verdict of one that came
// back.
//
// [plan.Row.Report] fills in a report's fields, and [codalab.RunReport] declares them. For a new field these
// things decide when the server gets it:
//
//   - A change in the part of a row that the ledger stores, or in its Progress, is reported at once
//     (worthReporting). A field that comes from the worker's status waits until the last report is 20 s old.
//   - A field that the server only ever expects to rise must not fall after a restart of the bridge, which knows
//     the row from the ledger alone ([plan.Row.Reportable]).
package report
