// Package sim drives a real bridge through a simulated site, by seed.
//
// What decides is the real thing: bridge.Bridge with its Step, its pumps and
// its effects, plan, and a ledger. Around it stands a site with a time of its
// own: a Slurm (slurmtest.Controller, which passes the same suite of tests as a
// real cluster), a CodaLab server, a shared disk, and the workers in the jobs:
//
//	           ┌────────────── events, by simulated time ──────────────┐
//	users ──► server ◄── check-ins ── bridge ── sbatch, scancel ──► Slurm
//	                                    │  ▲                          │ orders
//	                                    ▼  │ records, bell            ▼
//	                                  disk ◄──────────────────────  workers
//
// All that goes wrong is a Fault: one of a Kind, the n-th of its kind. Whether
// it strikes is a function of the seed, the kind and n alone, so that a seed is
// repeated exactly, and a failing one is shrunk by leaving faults out one by
// one while it still fails (Shrink). Each seed has a weather of its own: some
// kinds of faults do not happen in it, others do often. After a while the
// weather is calm, and then everything has to come to its end.
//
// What is checked, at each step and at the end, is listed with Violation.
package sim
