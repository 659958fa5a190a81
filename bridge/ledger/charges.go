package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Charge is the cost of one attempt whose job has started and ended.
type Charge struct {
	Bundle  string
	Attempt int
	// Owner is the id of the bundle's owner. OwnerName, and OwnerGroups with the names of the owner's groups, are empty if
	// the server did not tell them.
	Owner, OwnerName string
	OwnerGroups      []string
	Queue            string
	Job              sbatch.JobID
	// Pack is set if the attempt shared the job with others (plan.Attempt.Pack).
	Pack bool
	Node string
	// Submitted, Started and Ended are the job's, as far as the bridge knows them, and in a pack the attempt's.
	Submitted, Started, Ended time.Time
	// Staging is the time from the offer of the bundle until its inputs were ready; 0 for a later attempt.
	Staging time.Duration
	// Command is the time for which the command ran.
	Command time.Duration
	// CPUs, GPUs and MemoryBytes are what the bundle requested.
	CPUs, GPUs, MemoryBytes int64
	CPUTime                 time.Duration
	MemoryPeak              int64
	// GPUBusy is the mean share of the time in which the GPUs worked, from 0 to 1; negative if it was not measured.
	GPUBusy       float64
	GPUMemoryPeak int64
	Cause         spool.Cause
}

// clockSlack is the largest difference between the clocks of the bridge's and the controller's hosts, with the time
// from the end of an attempt to the start of another allocation of its job, if Slurm requeued it.
const clockSlack = 10 * time.Minute

// Has reports whether an allocation is the charged job's alone. Slurm uses an id again after some weeks, so that a job is
// known by its id and its time.
func (c Charge) Has(k sbatch.Charge) bool {
	return !c.Pack && k.ID == c.Job && !k.Start.Before(c.Submitted.Add(-clockSlack)) && !k.Start.After(c.Ended.Add(clockSlack))
}

// chargeRow is a Charge as the ledger stores it.
type chargeRow struct {
	Generation, Attempt, Job, Pack, Submitted, Started, Ended, Staging, Command, CPUs, GPUs, Memory int64

	Bundle, Owner, Queue, Node, Cause string
	OwnerName                         string `db:"owner_name"`
	OwnerGroups                       string `db:"owner_groups"`
	CPUTime                           int64  `db:"cpu_time"`
	MemoryPeak                        int64  `db:"memory_peak"`
	GPUBusy                           int64  `db:"gpu_busy"`
	GPUMemoryPeak                     int64  `db:"gpu_memory_peak"`
}

// busyUnit is the unit of gpu_busy.
const busyUnit = 1_000_000

func newChargeRow(r plan.Row, c plan.Charge) chargeRow {
	row := chargeRow{
		Generation: c.Generation, Attempt: int64(c.Attempt), Job: int64(c.Job),
		Submitted: nanoseconds(c.Submitted), Started: nanoseconds(c.Start), Ended: nanoseconds(c.End), Command: int64(seconds(c.CommandSeconds)),
		CPUs: max(r.Resources.CPUs, 1), GPUs: r.Resources.GPUs, Memory: r.Resources.Memory,
		Bundle: r.Bundle, Owner: validText(r.Run.OwnerID), OwnerName: validText(r.Run.OwnerName), OwnerGroups: validText(strings.Join(r.Run.OwnerGroups, " ")), Queue: validText(r.Queue), Node: validText(c.Node), Cause: validText(string(c.Cause)),
		CPUTime:    int64(seconds(c.Usage.UserSeconds + c.Usage.SystemSeconds)),
		MemoryPeak: c.Usage.MemoryPeak, GPUBusy: -1,
	}
	if c.Pack {
		row.Pack = 1
	}
	if c.Attempt == 1 && !r.Spent.StagedAt.IsZero() {
		row.Staging = int64(max(0, r.Spent.StagedAt.Sub(r.OfferedAt)))
	}
	if g := c.Usage.GPU; g.Samples > 0 {
		row.GPUBusy, row.GPUMemoryPeak = int64(g.BusyMean*busyUnit), g.MemoryPeak
	}
	return row
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// addCharges writes the costs of attempts that have ended. The attempts of a ledger from before its first charge, which
// have no generation, have none.
func addCharges(tx *sqlx.Tx, records []record) error {
	var rows []chargeRow
	add := func(r plan.Row, c plan.Charge) {
		row := newChargeRow(r, c)
		if n := len(rows); n > 0 && rows[n-1].Bundle == row.Bundle && rows[n-1].Generation == row.Generation {
			rows = rows[:n-1] // one statement writes a row once
		}
		rows = append(rows, row)
	}
	for _, rec := range records {
		if !rec.changed || rec.row.Run == nil {
			continue
		}
		if last := rec.row.Spent.Last; last != nil && rec.row.Phase == plan.Staging && last.Generation > 0 {
			add(rec.row, *last)
		}
		if c, ok := rec.row.Charge(); ok && c.Generation > 0 {
			add(rec.row, c)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	// sqlx expands a struct's fields for each row.
	_, err := tx.NamedExec(`
		INSERT INTO charges (generation, bundle, attempt, owner, owner_name, owner_groups, queue, job, pack, node, submitted, started, ended, staging,
			command, cpus, gpus, memory, cpu_time, memory_peak, gpu_busy, gpu_memory_peak, cause)
		VALUES (:generation, :bundle, :attempt, :owner, :owner_name, :owner_groups, :queue, :job, :pack, :node, :submitted, :started, :ended, :staging,
			:command, :cpus, :gpus, :memory, :cpu_time, :memory_peak, :gpu_busy, :gpu_memory_peak, :cause)
		ON CONFLICT (bundle, generation) DO UPDATE SET ended = excluded.ended, started = excluded.started, job = excluded.job, pack = excluded.pack, node = excluded.node,
			command = excluded.command, cpu_time = excluded.cpu_time, memory_peak = excluded.memory_peak, gpu_busy = excluded.gpu_busy,
			gpu_memory_peak = excluded.gpu_memory_peak, cause = excluded.cause`, rows)
	if err != nil {
		return fmt.Errorf("write charges: %w", err)
	}
	return nil
}

// ChargesOf returns the costs of all attempts of some bundles that have ended, each bundle's oldest first.
func (r *Reader) ChargesOf(ctx context.Context, bundles ...string) ([]Charge, error) {
	if len(bundles) == 0 {
		return nil, nil
	}
	query, args, err := sqlx.In(`SELECT * FROM charges WHERE bundle IN (?) ORDER BY bundle, ended, generation`, bundles)
	if err != nil {
		return nil, fmt.Errorf("read charges: %w", err)
	}
	var rows []chargeRow
	if err := r.db.SelectContext(ctx, &rows, r.db.Rebind(query), args...); err != nil {
		return nil, fmt.Errorf("read charges: %w", err)
	}
	found := make([]Charge, len(rows))
	for i, row := range rows {
		found[i] = row.charge()
	}
	return found, nil
}

// EachCharge calls do with the cost of each attempt that ended at or after since, and before until, oldest first. It
// stops at the first error of do, and returns it.
func (r *Reader) EachCharge(ctx context.Context, since, until time.Time, do func(Charge) error) error {
	rows, err := r.db.QueryxContext(ctx, r.db.Rebind(`SELECT * FROM charges WHERE ended >= ? AND ended < ? ORDER BY ended, bundle, generation`),
		since.UnixNano(), until.UnixNano())
	if err != nil {
		return fmt.Errorf("read charges: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var found chargeRow
		if err := rows.StructScan(&found); err != nil {
			return fmt.Errorf("read charges: %w", err)
		}
		if err := do(found.charge()); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read charges: %w", err)
	}
	return nil
}

func (c chargeRow) charge() Charge {
	at := func(n int64) time.Time {
		if n == 0 {
			return time.Time{}
		}
		return time.Unix(0, n).UTC()
	}
	found := Charge{
		Bundle: c.Bundle, Attempt: int(c.Attempt), Owner: c.Owner, OwnerName: c.OwnerName, OwnerGroups: slices.Collect(strings.FieldsSeq(c.OwnerGroups)), Queue: c.Queue,
		Job: sbatch.JobID(c.Job), Pack: c.Pack != 0, Node: c.Node, Submitted: at(c.Submitted), Started: at(c.Started), Ended: at(c.Ended),
		Staging: time.Duration(c.Staging), Command: time.Duration(c.Command), CPUs: c.CPUs, GPUs: c.GPUs, MemoryBytes: c.Memory,
		CPUTime: time.Duration(c.CPUTime), MemoryPeak: c.MemoryPeak, GPUBusy: -1, GPUMemoryPeak: c.GPUMemoryPeak, Cause: spool.Cause(c.Cause),
	}
	if c.GPUBusy >= 0 {
		found.GPUBusy = float64(c.GPUBusy) / busyUnit
	}
	return found
}
