package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Submissions returns the submissions that rows share, in their order.
func (r *Reader) Submissions(ctx context.Context) ([]plan.Submission, error) {
	var documents []string
	if err := r.db.SelectContext(ctx, &documents, `SELECT document FROM submissions`); err != nil {
		return nil, fmt.Errorf("read submissions: %w", err)
	}
	shared := make([]plan.Submission, len(documents))
	for i, packed := range documents {
		data, err := packs.unpack(packed)
		if err == nil {
			err = json.Unmarshal(data, &shared[i])
		}
		if err != nil {
			return nil, fmt.Errorf("read submission: %w", err)
		}
	}
	slices.SortFunc(shared, plan.Submission.Compare)
	return shared, nil
}

// packShared returns the documents of submissions.
func packShared(shared []plan.Submission) ([]string, error) {
	documents := make([]string, len(shared))
	for i, s := range shared {
		encoded, err := json.Marshal(s)
		if err == nil {
			documents[i], err = packs.pack(encoded)
		}
		if err != nil {
			return nil, fmt.Errorf("save submission %s: %w", s.Name, err)
		}
	}
	return documents, nil
}

// saveShared writes submissions, and removes those that are over.
func saveShared(tx *sqlx.Tx, shared []plan.Submission, documents []string) error {
	var over, args []any
	for i, s := range shared {
		if s.State == plan.Over {
			over = append(over, validText(string(s.Name)))
			continue
		}
		args = append(args, validText(string(s.Name)), s.Generation, validText(s.Queue), string(s.State), int64(s.Array), documents[i])
	}
	const columns = 6
	for part := range slices.Chunk(args, columns*rowsPerStatement) {
		_, err := exec(tx, `
			INSERT INTO submissions (name, generation, queue, state, job, document) VALUES `+values(len(part)/columns, columns)+`
			ON CONFLICT (name) DO UPDATE SET state = excluded.state, job = excluded.job, document = excluded.document`, part...)
		if err != nil {
			return err
		}
	}
	for part := range slices.Chunk(over, rowsPerStatement) {
		if _, err := exec(tx, `DELETE FROM submissions WHERE name IN `+values(1, len(part)), part...); err != nil {
			return err
		}
	}
	return nil
}
