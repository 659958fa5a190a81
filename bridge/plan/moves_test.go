package plan_test

import (
	"slices"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// move is the effect of one decision on a row.
type move struct {
	from, to plan.Phase
	// reason is the row's new reason; empty if neither reason nor phase changed.
	reason string
	news   []string
	// mattered is set if the row would differ without the news.
	mattered bool
	wants    []plan.Kind
}

func moveOf(before, after plan.Row, n plan.News, effects []plan.Effect) move {
	m := move{from: before.Phase, to: after.Phase, news: newsNames(n)}
	if before.Reason != after.Reason || before.Phase != after.Phase {
		m.reason = after.Reason
	}
	for _, e := range effects {
		m.wants = append(m.wants, e.Kind)
	}
	return m
}

// on replaces the cause of the move.
func (m move) on(what string) move {
	m.news = []string{what}
	return m
}

// newsNames returns the kinds of the news.
func newsNames(n plan.News) []string {
	var names []string
	add := func(arrived bool, name string) {
		if arrived && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	add(n.Restarted, "restart")
	add(n.Found != nil, "found job")
	add(n.DiskLow != nil, "disk")
	add(n.Unanswered, "unanswered check-in")
	add(n.GiveBack, "give-back of the worker")
	add(n.Restaged, "staged again")
	for _, m := range n.Messages {
		add(true, "message "+string(m.Type))
	}
	add(n.Observation != nil, "snapshot")
	add(n.Accounting != nil || n.AccountingFailure != "", "accounting")
	add(n.Records != nil || n.RecordsFailure != "", "records")
	add(n.Claimed != nil, "claim's answer")
	add(n.Staged != nil || n.Progress != "", "stage's answer")
	add(n.Carried != nil, "carry's answer")
	add(n.Prepared != nil, "prepare's answer")
	add(n.Submitted != nil, "submit's answer")
	add(n.Canary != nil, "canary's answer")
	add(n.Fenced != nil, "close's answer")
	add(n.TimeTold != nil, "limit's answer")
	add(n.Cancelled != nil, "cancel's answer")
	add(n.Collected != nil || n.DataChanged != "", "collect's answer")
	add(n.Confirmed != nil, "confirm's answer")
	add(n.Released != nil, "release's answer")
	add(n.Remark != "", "remark")
	if len(names) == 0 {
		names = []string{"time"}
	}
	return names
}
