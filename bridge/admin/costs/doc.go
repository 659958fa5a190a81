// Package costs reports what the bundles of a bridge have cost, for `cl-bridge report`: a line for each job, and sums.
//
// The bridge's ledger tells which job ran which attempt, whose bundle that was, and what the worker measured. Slurm's
// accounting database tells when the job had its resources, and how many. Where the database does not know a job, the
// bridge's own times count, which may differ by the seconds that Slurm needs to start and to end a job.
package costs
