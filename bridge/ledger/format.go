package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

// format is the format in which Save writes rows. The ledger also reads rows of format 1, because a bridge
// that was replaced by a newer version had bundles in flight. Each such row gets the new format when it is
// saved next. An older version refuses the ledger, because it lacks a migration.
const format = 2

// document is a row as the ledger stores it.
type document struct {
	Version  int64
	Format   int64
	Document string
}

func (d document) row() (plan.Row, error) {
	data, err := packs.unpack(d.Document)
	switch {
	case err != nil || d.Format == format:
	case d.Format == 1:
		data, err = fromFormat1(data)
	default:
		err = fmt.Errorf("format %d", d.Format)
	}
	var r plan.Row
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return plan.Row{}, fmt.Errorf("read row: %w", err)
	}
	r.Version = d.Version
	return r, nil
}

// names1 maps the names of fields in format 1 to their names and places in format 2. Format 1 had no
// separate parts for the attempt and for the failed tries.
var names1 = map[string]string{ //nolint:gochecknoglobals // a table, never written
	"claimed": "offered_at", "offered": "reoffered_at", "since": "phase_since", "decided": "decided_at", "due": "due_at",
	"low": "disk_low", "changed": "data_changed", "stop": "stop_verdict", "reports": "report_count",

	"tries": "retry.failed_tries", "trouble": "retry.last_failure", "troubled": "retry.failing_since",
	"turned": "retry.failure_kind_since", "outage": "retry.failed_by_outage",

	"attempt": "attempt.number", "mark": "attempt.submission_name", "generation": "attempt.generation",
	"prepared": "attempt.prepared", "submitted": "attempt.submitted_at", "sbatches": "attempt.sbatch_count",
	"refused": "attempt.repeat_refusal", "unclear": "attempt.unclear_count", "job": "attempt.job",
	"absent": "attempt.absent_as_of", "ended": "attempt.no_job_since", "looked": "attempt.records_read_at",
	"last_words": "attempt.output_tail", "stuck": "attempt.impossible_since", "cancelled": "attempt.cancelled_at",
	"closed": "attempt.fenced", "gone": "attempt.records_gone_since", "begun": "attempt.begun", "exit": "attempt.exit",
}

// fromFormat1 converts a document of format 1 to format 2.
func fromFormat1(data []byte) ([]byte, error) {
	var old struct {
		Attempt int        `json:"attempt"`
		Phase   plan.Phase `json:"phase"`
		Times   struct {
			Running json.RawMessage `json:"running,omitempty"`
		} `json:"times"`
	}
	var fields map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(data, &old), json.Unmarshal(data, &fields)); err != nil {
		return nil, fmt.Errorf("decode row: %w", err)
	}
	top, parts := map[string]any{}, map[string]map[string]any{"attempt": {}, "retry": {}}
	if old.Times.Running != nil {
		parts["attempt"]["running_at"] = old.Times.Running
	}
	if old.Attempt > 0 {
		parts["attempt"]["on_disk"] = spool.OldAttemptName(old.Attempt)
	}
	for name, value := range fields {
		if renamed, ok := names1[name]; ok {
			name = renamed
		}
		if part, field, ok := strings.Cut(name, "."); ok {
			parts[part][field] = value
		} else {
			top[name] = value
		}
	}
	// Format 1 had no count of failed attempts: all but the current one had failed.
	failed := old.Attempt
	if old.Phase != plan.Staging {
		failed--
	}
	top["failed_attempts"] = max(failed, 0)
	for part, fields := range parts {
		top[part] = fields
	}
	data, err := json.Marshal(top)
	if err != nil {
		return nil, fmt.Errorf("encode row: %w", err)
	}
	return data, nil
}
