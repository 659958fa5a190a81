// Package bridge turns a CodaLab server's bundles into Slurm jobs.
//
// Package plan decides; this package is the loop around it. Data flows in a circle:
//
//	server ── messages ──┐                                  ┌─► start_bundle, upload
//	Slurm ─── snapshot ──┤                       ┌─► doer ──┼─► sbatch, scancel, sacct
//	disk ──── doorbell ──┼─► inbox ─► decider ───┤          └─► stage, fence, release
//	effects ─ outcomes ──┘              │        └─► board ─► watchers, check-ins
//	                                    └─► ledger
//
// The watchers put news into the inbox: nodeWatch and slurmWatch ask Slurm, recordReader reads the records of
// workers and their doorbell, diskWatch measures the shared disk, and the check-ins of each queue bring the
// server's messages. The decider empties the inbox, decides the rows that have news or are due
// (plan.Policy.Next), saves the rows that changed, shows them on the board, and only then starts their effects.
// It waits for the ledger and for nothing else. The doer does effects; places bounds those that run at once. At
// most one effect of a kind runs for an attempt. One scancel or sacct serves many rows. If an effect fails, or
// a crash cuts it short, its row wants it again; a submission only after the first one is proven absent.
//
// The watchers and the check-ins know the rows from the board alone, which has three parts: the view has the
// rows, reports has the reports of check-ins (package report), and capacity has the resources that check-ins
// tell.
//
// The package names its needs of the world as small interfaces, which cmd fills.
package bridge
