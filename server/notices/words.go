package notices

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// A mail names so many bundles, and of each has so many bytes of the reason of its failure.
const (
	mostNamed  = 50
	mostReason = 500
)

// inOrder returns bundles in the order of a mail: failures first.
func inOrder(bundles []store.Bundle) []store.Bundle {
	rank := func(b store.Bundle) int {
		return slices.Index([]codalab.State{codalab.StateFailed, codalab.StateKilled, codalab.StateReady}, b.State)
	}
	bundles = slices.Clone(bundles)
	slices.SortStableFunc(bundles, func(a, b store.Bundle) int { return cmp.Or(rank(a)-rank(b), strings.Compare(nameOf(a), nameOf(b))) })
	return bundles
}

// words describe the ends of bundles, which are in order. whys are the reasons of failures by uuid. asked is the number for
// which the user asked: the others were removed, or are no longer the user's to read.
func words(bundles []store.Bundle, whys map[string]string, asked int) (subject, text string) {
	count := map[codalab.State]int{}
	for _, b := range bundles {
		count[b.State]++
	}
	parts := []string{fmt.Sprintf("%d of %d ready", count[codalab.StateReady], asked)}
	for _, state := range []codalab.State{codalab.StateFailed, codalab.StateKilled} {
		if count[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[state], state))
		}
	}
	if gone := asked - len(bundles); gone > 0 {
		parts = append(parts, fmt.Sprintf("%d removed or no longer shared with you", gone))
	}
	subject = strings.Join(parts, ", ")
	if asked == 1 && len(bundles) == 1 {
		subject = nameOf(bundles[0]) + " " + string(bundles[0].State)
	}
	lines := []string{subject, ""}
	for i, b := range bundles {
		if i == mostNamed {
			lines = append(lines, fmt.Sprintf("… and %d more", len(bundles)-i))
			break
		}
		line := fmt.Sprintf("%-6s  %s(%s)", b.State, nameOf(b), b.UUID)
		if why := termtext.OneLine(whys[b.UUID]); why != "" && b.State != codalab.StateReady {
			if len(why) > mostReason {
				why = strings.ToValidUTF8(why[:mostReason], "") + "…"
			}
			line += ": " + why
		}
		lines = append(lines, line)
	}
	return subject, strings.Join(lines, "\n") + "\n"
}

func nameOf(b store.Bundle) string { return termtext.OneLine(b.Metadata.String("name")) }
