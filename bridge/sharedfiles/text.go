package sharedfiles

import (
	"fmt"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// SweepText returns the findings of a sweep for people, or with dryRun those of
// [Sweeper.Find].
func SweepText(found []Finding, dryRun bool) string {
	rows := [][]string{{"", "KIND", "SIZE", "PATH", "WHY"}}
	removed := "removed"
	if dryRun {
		removed = "would go"
	}
	var bytes int64
	gone := 0
	for _, f := range found {
		fate, reason := "left", f.Reason
		switch {
		case f.Kept:
			fate = "kept"
		case f.Trouble != "":
			fate, reason = "failed", f.Trouble
		case dryRun || f.Removed:
			fate = removed
			bytes += f.Bytes
			gone++
		}
		rows = append(rows, []string{fate, string(f.Kind), codalab.FormatSize(f.Bytes), f.Path, termtext.Line(reason)})
	}
	sum := fmt.Sprintf("removed %d leftovers, %s\n", gone, codalab.FormatSize(bytes))
	if dryRun {
		sum = fmt.Sprintf("%d leftovers, %s, would be removed; nothing was\n", gone, codalab.FormatSize(bytes))
	}
	if len(found) == 0 {
		return sum
	}
	return termtext.Table(rows) + "\n" + sum
}
