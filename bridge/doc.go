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
package bridge
