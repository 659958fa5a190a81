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
// Package report decides what check-ins report.
package bridge
