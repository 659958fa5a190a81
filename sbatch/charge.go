package sbatch

import (
	"context"
	"fmt"
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
const chargeFields = "JobIDRaw,State,Start,End,ElapsedRaw,AllocTRES,ConsumedEnergyRaw"

// QueryCharges returns the allocations of the jobs of the user who runs it that were active between two times and have
// ended. One sacct asks for all of them. It costs the controller nothing. At a site without a database the error is an
// ErrNoAccounting.
func (c *Client) QueryCharges(ctx context.Context, since, until time.Time) ([]Charge, error) {
	const form = "2006-01-02T15:04:05"
	out, err := c.query(ctx, "account",
		c.onCluster("sacct", "--allocations", "--parsable2", "--noheader", "--duplicates",
			"--starttime="+since.UTC().Format(form), "--endtime="+until.UTC().Format(form), "--format="+chargeFields)...)
	if err != nil {
		return nil, accountingError(err)
	}
	charges, err := parseCharges(out)
	if err != nil {
		return nil, &Error{Op: "account", Message: err.Error(), Err: err}
	}
	return charges, nil
}

// parseCharges reads sacct's answer, one allocation per line. It leaves out jobs that never had an allocation, and
// those that have not ended.
func parseCharges(out string) ([]Charge, error) {
	lines, err := splitLines(out, 7)
	if err != nil {
		return nil, err
	}
	var charges []Charge
	for _, f := range lines {
		id, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil || id <= 0 {
			return nil, fmt.Errorf("cannot read job id %q", shorten(f[0]))
		}
		start, end := parseTime(f[2]), parseTime(f[3])
		elapsed, err := strconv.ParseInt(f[4], 10, 64)
		if err != nil || elapsed < 0 {
			return nil, fmt.Errorf("cannot read the elapsed time %q of job %d", shorten(f[4]), id)
		}
		if start.IsZero() || end.IsZero() || f[5] == "" {
			continue
		}
		state, _, _ := strings.Cut(f[1], " by ")
		charge := Charge{
			ID: JobID(id), State: State(strings.Clone(state)), Start: start, End: end,
			Elapsed: time.Duration(elapsed) * time.Second, EnergyJoules: parseEnergy(f[6]),
		}
		charge.CPUs, charge.GPUs = parseTRES(f[5])
		charges = append(charges, charge)
	}
	return charges, nil
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
