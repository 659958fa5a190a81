package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Decision is one decision of a trace, with the result of its replay.
type Decision struct {
	// Line is its line in the file, counted from 1.
	Line int
	plan.Decision
	// Different has the differences between the recorded result and the new one.
	Different []Difference
	// Discontinuous has the differences between the result of the bundle's previous decision and its row.
	Discontinuous []Difference
}

// Difference is one field of a row, or the effects, as JSON.
type Difference struct {
	Field string `json:"field"`
	Was   string `json:"was"`
	Is    string `json:"is"`
}

// Summary describes a trace.
type Summary struct {
	// Different counts the decisions, among Decisions, that have another result now, or do not continue
	// the previous one. Rows counts the bundles.
	Decisions int `json:"decisions"`
	Rows      int `json:"rows"`
	Different int `json:"different"`
	// Torn counts the lines that a crash cut short, Lost the decisions that could not be recorded.
	Torn int `json:"torn"`
	Lost int `json:"lost"`
}

// Replay makes the decisions of a trace again, each with the policy of the header before it, and calls see
// for each. It skips bundles whose UUIDs do not begin with bundle. It fails if the file is no trace or has
// another Format, and if see fails.
func Replay(trace io.Reader, bundle string, see func(Decision) error) (Summary, error) {
	r := &replay{bundle: bundle, see: see, before: map[string]last{}, rows: map[string]bool{}}
	in := bufio.NewReaderSize(trace, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			r.line++
			if err := r.readLine(line, err == nil); err != nil {
				return r.sum, fmt.Errorf("replay line %d: %w", r.line, err)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return r.sum, fmt.Errorf("read trace: %w", err)
		}
	}
	if r.policy == nil {
		return r.sum, errors.New("replay: this is no trace of a bridge: it has no header")
	}
	r.sum.Torn += r.torn
	r.sum.Rows = len(r.rows)
	return r.sum, nil
}

type replay struct {
	bundle string
	see    func(Decision) error
	policy *plan.Policy
	line   int
	torn   int // unreadable lines; only a header or the end of the file may follow them
	before map[string]last
	rows   map[string]bool
	sum    Summary
}

// last is the last decision of a bundle.
type last struct {
	row    plan.Row
	unsure bool // later decisions may be missing
}

func (r *replay) readLine(line []byte, whole bool) error {
	var rec record
	if err := json.Unmarshal(line, &rec); err != nil {
		if whole && r.policy == nil {
			return fmt.Errorf("this is no trace of a bridge: %w", err)
		}
		r.torn++
		return nil
	}
	if r.torn > 0 && rec.Header == nil {
		return errors.New("the line before it cannot be read")
	}
	switch {
	case rec.Header != nil:
		if rec.Header.Format != Format {
			return fmt.Errorf("a trace of format %d; this build reads format %d", rec.Header.Format, Format)
		}
		r.policy = &rec.Header.Policy
		r.sum.Torn, r.torn = r.sum.Torn+r.torn, 0
		r.forgetOrder()
	case rec.Lost > 0:
		r.sum.Lost += rec.Lost
		r.forgetOrder()
	case rec.Decision == nil:
		return errors.New("neither header nor decision")
	case r.policy == nil:
		return errors.New("a decision before any header")
	case strings.HasPrefix(rec.Decision.Row.Bundle, r.bundle):
		return r.decide(*rec.Decision)
	}
	return nil
}

// forgetOrder notes that the next decision of each bundle need not follow from its last one: decisions are
// missing, or were never saved.
func (r *replay) forgetOrder() {
	for bundle, l := range r.before {
		l.unsure = true
		r.before[bundle] = l
	}
}

func (r *replay) decide(rec plan.Decision) error {
	next, effects := r.policy.Next(rec.Now, rec.Row, rec.News)
	d := Decision{Line: r.line, Decision: rec, Different: differences(rec.Next, next)}
	if is := plan.KindsOf(effects); !slices.Equal(rec.Effects, is) {
		d.Different = append(d.Different, Difference{"effects", fmt.Sprint(rec.Effects), fmt.Sprint(is)})
	}
	if l, ok := r.before[rec.Row.Bundle]; ok && !l.unsure {
		d.Discontinuous = differences(r.expectedRow(l.row, rec), rec.Row)
	}
	r.before[rec.Row.Bundle] = last{row: rec.Next}
	if slices.Contains(rec.Effects, plan.Forget) {
		delete(r.before, rec.Row.Bundle)
	}
	r.rows[rec.Row.Bundle] = true
	r.sum.Decisions++
	if len(d.Different)+len(d.Discontinuous) > 0 {
		r.sum.Different++
	}
	return r.see(d)
}

// expectedRow returns the row that a bundle's next decision should begin with: the result of its last one, or
// of NewAttempt if that came between the two.
func (r *replay) expectedRow(before plan.Row, rec plan.Decision) plan.Row {
	if before.Phase == plan.Staging && rec.Row.Phase == plan.Submitting {
		next := r.policy.NewAttempt(rec.Now, before, rec.Row.Generation)
		next.Exclude = rec.Row.Exclude // a trace does not have the nodes' health
		if rec.Row.Shared {            // nor the rows with which it shares its submission: the first of them gives the name
			next.Shared, next.Pack, next.Index, next.SubmissionName = true, rec.Row.Pack, rec.Row.Index, rec.Row.SubmissionName
			next.Slot, next.Reason = rec.Row.Slot, rec.Row.Reason
		}
		return next
	}
	return before
}

// differences compares the parts of two rows that a ledger stores.
func differences(was, is plan.Row) []Difference {
	a, b := fields(was), fields(is)
	var found []Difference
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if string(a[name]) != string(b[name]) {
			found = append(found, Difference{name, abbreviate(a[name]), abbreviate(b[name])})
		}
	}
	return found
}

// fields returns a row's fields as JSON. Those of the attempt and of its failed tries have their full names,
// such as attempt.job.
func fields(r plan.Row) map[string]json.RawMessage {
	out, attempt, retry := map[string]json.RawMessage{}, r.Attempt, r.Retry
	r.Attempt, r.Retry = plan.Attempt{}, plan.Retry{}
	err := errors.Join(addFields(out, "", r), addFields(out, "attempt.", attempt), addFields(out, "retry.", retry))
	if err != nil { // a time that JSON cannot hold
		return map[string]json.RawMessage{"row": json.RawMessage(err.Error())}
	}
	return out
}

// addFields adds the fields of a value, with a prefix before their names.
func addFields(to map[string]json.RawMessage, prefix string, value any) error {
	var found map[string]json.RawMessage
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, &found)
	}
	if err != nil {
		return fmt.Errorf("show row: %w", err)
	}
	for name, v := range found {
		to[prefix+name] = v
	}
	return nil
}

// abbreviate returns a value in at most a line; "-" for none.
func abbreviate(value json.RawMessage) string {
	const most = 200
	switch text := string(value); {
	case text == "":
		return "-"
	case len(text) > most:
		return strings.ToValidUTF8(text[:most], "") + "…"
	default:
		return text
	}
}
