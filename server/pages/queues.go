package pages

import (
	"fmt"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// queueRow is a queue in the list of queues.
type queueRow struct{ codalab.Queue }

// Wait is the wait of a new run, or the reason for which the queue takes none.
func (q queueRow) Wait() string {
	switch {
	case q.AwaySince > 0:
		return "away since " + utc(time.Unix(q.AwaySince, 0))
	case q.Closed != "":
		return "closed: " + q.Closed
	case q.ExpectedWait != nil:
		return "about " + codalab.FormatDuration(time.Duration(*q.ExpectedWait)*time.Second)
	}
	return ""
}

// queues shows the queues: what one run can have there, their load, and the time for which new runs wait.
func (p *Pages) queues(v *visit) error {
	found, err := v.api.Queues(v.Context())
	if err != nil {
		return fmt.Errorf("show queues: %w", err)
	}
	var rows []queueRow
	for _, q := range found {
		rows = append(rows, queueRow{q})
	}
	return p.show(v, http.StatusOK, "queues", "Queues", rows)
}
