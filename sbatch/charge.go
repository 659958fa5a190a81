package sbatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Charge is the accounting database's record of one allocation of a job that has ended. A job that was requeued has one
// for each start.
type Charge struct {
	ID         JobID
	State      State
	Start, End time.Time
	// Elapsed is the time of the allocation, without the time in which the job was suspended.
	Elapsed time.Duration
	// CPUs and GPUs are those of the allocation.
	CPUs, GPUs int64
	// EnergyJoules is 0 if Slurm does not measure the energy (slurm.conf(5): AcctGatherEnergyType).
	EnergyJoules int64
}

// chargeFields is the format of sacct(1) that parseCharges reads. It has no name and no comment, because a user may
// write separators and line feeds into those of any job.
const chargeFields = "JobID,State,Start,End,ElapsedRaw,AllocTRES,ConsumedEnergyRaw"

// QueryCharges returns the allocations of the jobs of the user who runs it that were active between two times and have
// ended. One sacct asks for all of them. It costs the controller nothing. At a site without a database the error is an
// ErrNoAccounting. With energy the question is for the steps, too, which takes the database longer: most sites have the
// energy there alone (see energyOf).
func (c *Client) QueryCharges(ctx context.Context, since, until time.Time, energy bool) ([]Charge, error) {
	selection := []string{"--endtime=" + until.UTC().Format(accountingTime)}
	if !energy {
		selection = append(selection, "--allocations")
	}
	return c.queryCharges(ctx, since, selection...)
}

// QueryChargesOf is QueryCharges, with energy, for some jobs that were active since a time.
func (c *Client) QueryChargesOf(ctx context.Context, since time.Time, ids ...JobID) ([]Charge, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	asked := ask(ids)
	charges, err := c.queryCharges(ctx, since, asked.option())
	return slices.DeleteFunc(charges, func(charge Charge) bool { return !asked.has(charge.ID) }), err
}

// accountingTime is the form of a time on sacct's command line.
const accountingTime = "2006-01-02T15:04:05"

func (c *Client) queryCharges(ctx context.Context, since time.Time, selection ...string) ([]Charge, error) {
	args := append([]string{
		"sacct", "--parsable2", "--noheader", "--duplicates", "--starttime=" + since.UTC().Format(accountingTime), "--format=" + chargeFields,
	}, selection...)
	out, err := c.query(ctx, "account", c.onCluster(args...)...)
	if err != nil {
		return nil, accountingError(err)
	}
	charges, err := parseCharges(out)
	if err != nil {
		return nil, &Error{Op: "account", Message: err.Error(), Err: err}
	}
	return charges, nil
}

// parseCharges reads sacct's answer: a line for each allocation, with those of its steps after it if the question was for
// them. It leaves out jobs that never had an allocation, and those that have not ended.
func parseCharges(out string) ([]Charge, error) {
	lines, err := splitLines(out, 7)
	if err != nil {
		return nil, err
	}
	var charges []Charge
	var steps map[string]int64 // of the last charge; nil if the last allocation is left out
	var ids []JobID
	for _, f := range lines {
		job, step, isStep := strings.Cut(f[0], ".")
		shared := false
		if ids, shared, err = appendIDs(ids[:0], job); err != nil {
			return nil, err
		}
		if isStep {
			if last := len(charges) - 1; steps != nil && charges[last].ID == ids[0] {
				steps[step] = parseEnergy(f[6])
				charges[last].EnergyJoules = energyOf(steps)
			}
			continue
		}
		charge, ended, err := parseAllocation(f)
		if err != nil {
			return nil, err
		}
		if steps = nil; ended && !shared { // tasks that share a record have not begun
			charge.ID, steps = ids[0], map[string]int64{"": charge.EnergyJoules}
			charges = append(charges, charge)
		}
	}
	return charges, nil
}

// parseAllocation reads the line of an allocation, and reports whether it has ended.
func parseAllocation(f []string) (charge Charge, ended bool, err error) {
	elapsed, err := strconv.ParseInt(f[4], 10, 64)
	if err != nil || elapsed < 0 {
		return Charge{}, false, fmt.Errorf("cannot read the elapsed time %q of job %s", shorten(f[4]), shorten(f[0]))
	}
	state, _, _ := strings.Cut(f[1], " by ")
	charge = Charge{
		State: State(strings.Clone(state)), Start: parseTime(f[2]), End: parseTime(f[3]),
		Elapsed: time.Duration(elapsed) * time.Second, EnergyJoules: parseEnergy(f[6]),
	}
	charge.CPUs, charge.GPUs = parseTRES(f[5])
	return charge, !charge.Start.IsZero() && !charge.End.IsZero() && f[5] != "", nil
}

// energyOf returns the energy of an allocation from its own number, which has the empty name, and those of its steps. Slurm
// gives the allocation a number where each one has an extern step (slurm.conf(5): PrologFlags=Contain; Slurm
// src/stepmgr/stepmgr.c: _internal_step_complete), and that step's is the same. Elsewhere the largest number of a step counts:
// that of batch, whose time has those of all others in it. Sensors measure whole nodes, so that a sum would count twice.
func energyOf(steps map[string]int64) int64 {
	for _, whole := range []string{"", "extern"} {
		if steps[whole] > 0 {
			return steps[whole]
		}
	}
	return slices.Max(slices.Collect(maps.Values(steps)))
}

// mostEnergy is more than a job can use: a plugin that lost its counter leads to numbers near 2^64, which Slurm
// prints for "unknown" (Slurm src/common/slurm_protocol_defs.h: NO_VAL64).
const mostEnergy = 1 << 50

func parseEnergy(s string) int64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > mostEnergy {
		return 0
	}
	return int64(n)
}

// parseTRES returns the processors and the GPUs of a list such as "billing=4,cpu=4,gres/gpu=2,gres/gpu:a100=2,mem=8G".
// A site that tracks only types of GPUs has no gres/gpu.
func parseTRES(list string) (cpus, gpus int64) {
	var typed int64
	for item := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(item, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil:
		case name == "cpu":
			cpus = n
		case name == "gres/gpu":
			gpus = n
		case strings.HasPrefix(name, "gres/gpu:"):
			typed += n
		}
	}
	if gpus == 0 {
		gpus = typed
	}
	return cpus, gpus
}
