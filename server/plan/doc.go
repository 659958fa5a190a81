// Package plan makes the server's decisions: it changes the states of bundles, matches runs with workers,
// words the reason for which a run waits, and applies quotas. It has no store, no HTTP, no clock and no
// lock. Values go in, values come out, and now is an argument.
//
// # States of a bundle
//
//	(new) ──created──► uploading | created | staged | ready
//	created ──its parents are ready, or one has failed or is gone──► staged | failed
//	staged ──a worker has room──► starting ──start_bundle──► preparing
//	staged ──it requests more than it may──► failed
//	starting ──no worker claims it──► staged
//	starting | preparing | running | worker_offline ──a check-in──► preparing | running | ready | failed | killed
//	starting | preparing | running | worker_offline ──its worker gives it back──► staged | killed
//	preparing | running ──its worker does not report it──► worker_offline
//	preparing | running ──its worker was preemptible, and has gone──► staged | killed
//	uploading | staged | worker_offline ──60 days old──► failed
//	staged ──a make bundle──► making ──its dependencies are copied──► ready
//	making ──a dependency cannot be copied──► failed
//	making ──the server was stopped──► staged
//	uploading | created | staged | making | starting ──a user kills it──► killed
//	uploading | created | staged | making ──its upload fails──► failed
//	(any but a final one) ──its contents are uploaded──► ready | failed | killed
//
// Dataset and program bundles begin as uploading, bundles that link to data as ready, and run and make
// bundles as created, or as uploading if they are copies whose contents come later. Those without
// dependencies, which need not wait, begin as staged. When a
// user kills a run that its worker has claimed, its state stays: the worker ends the run, and reports that.
//
// No bundle is finalizing. On CodaLab's own server, a run is so from the report of its end to the
// acknowledgement. Here that report, whose state is finalizing, ends the run at once.
//
// A method of Bundle returns the bundle as it is after a transition. A transition that does not apply,
// because another one came first, returns the bundle as it was. The caller gives the stored bundle, in a
// transaction, and stores the result.
//
// # Matching
//
// Match goes through the waiting runs in fair order: the owner with the fewest runs on workers is next.
// For each run it chooses a worker among the Capacities, or gives the sentence that tells the owner why the
// run waits. The sentence mentions only workers that the owner may use.
//
// # Promises
//
//   - A decision depends on its arguments only, and does not change them.
//   - A final state never changes.
//   - A bundle that a worker has names that worker.
//   - The metadata key data_size is DataSize wherever it is set.
//   - Only the owner's own priorities order the runs of an owner. No priority passes another owner.
//   - A worker gets no more runs than it has room for. The one exception is a worker that refuses a
//     run in its own words because no node of it is large enough (Capacity.Nodes).
package plan
