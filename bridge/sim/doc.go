// Package sim drives a real bridge through a simulated site, by seed.
//
// The bridge is real: bridge.Bridge with its Step, its watchers and its effects, plan, sbatch.Observer, and
// a ledger. The site has a time of its own, and consists of a Slurm (slurmtest.Controller, which
// passes the same suite of tests as a real cluster), a CodaLab server, a shared disk, and the
// workers in the jobs:
//
//	           ┌────────────── events, by simulated time ──────────────┐
//	users ──► server ◄── check-ins ── bridge ── sbatch, scancel ──► Slurm
//	                                    │  ▲                          │ orders
//	                                    ▼  │ records, bell            ▼
//	                                  disk ◄──────────────────────  workers
//
// Everything that goes wrong is a Fault: the n-th chance of a Kind. Only the seed, the kind and n decide
// whether it strikes. So a seed can be repeated exactly, and Shrink shortens a failing seed: it leaves out
// faults one by one while the seed still fails. Each seed has its own weather: some kinds of faults never
// happen in it, others often. After eight minutes no fault strikes any more, and then everything has to
// come to its end.
//
// A site has one to three queues and two owners. A few seeds are crowded: more bundles share fewer places
// and submissions than at a real site, so that starvation shows soon. In some seeds many bundles are
// killed at once, and the controller accepts few requests.
//
// In some seeds bundles come in sweeps, and go to Slurm as arrays or in packs. A script is a batch script on its node; it runs the
// worker of one attempt, or those of a pack's members in their turn. Half of the seeds with packs have fair weather, in which few kinds of
// faults happen: in other weather few packs come to run most of their members.
//
// A rival is a bridge with another ledger on the same shared directory. It uses the real lease
// (bridge/lease), in files of this machine, by the site's time.
//
// Broken lists the promises. The simulation checks them at each step and at the end.
package sim
