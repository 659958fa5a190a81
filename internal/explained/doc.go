// Package explained has tests alone: they make a real Slurm give each reason of a wait, and each end of a job, that it
// can be made to give, and compare what the product says about it with golden files, one for each version of Slurm in
// testdata.
//
// These tests change limits, preempt jobs, drain nodes and end them. Other tests would meet that, and be met. So
// they have a cluster of their own, the second one of the chosen Slurm: they start it, one process of the machine at
// a time uses it, and it ends with them.
//
//	go test ./internal/explained                          # Debian 12's Slurm
//	SLURM=sid go test ./internal/explained -run Reason    # trixie's or sid's
//	go test ./internal/explained -update                  # write the golden files of that Slurm
//
// The names that a Slurm has for reasons and states which the cluster cannot be made to give are in tables of packages
// sbatch (testdata/reasons.golden) and plan (testdata/states.golden).
package explained
