package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/checklist"
)

// Check is the result for one thing that a first job needs.
type Check = checklist.Check

// Verdict is the result of a check.
type Verdict = checklist.Verdict

// The verdicts. A first job runs in spite of warnings.
const (
	OK      = checklist.OK
	Warning = checklist.Warning
	Failed  = checklist.Failed
)

func ok(name, format string, args ...any) Check {
	return Check{Name: name, Verdict: OK, Found: fmt.Sprintf(format, args...)}
}

func warning(name, found, do string) Check {
	return Check{Name: name, Verdict: Warning, Found: found, Do: do}
}

func failed(name, found, do string) Check {
	return Check{Name: name, Verdict: Failed, Found: found, Do: do}
}

func unreachable(name, found, do string) Check {
	return Check{Name: name, Verdict: Failed, Found: found, Do: do, Unreachable: true}
}

// HasFailed reports whether any check failed, and whether each failed one is Unreachable.
func HasFailed(checks []Check) (one, allUnreachable bool) { return checklist.HasFailed(checks) }

// nearest returns the known word that was probably meant; empty where none is near.
func nearest(word string, known []string) string {
	best, least := "", max(2, len(word)/3)+1
	for _, k := range known {
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to insert, delete or replace that make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := last
			if a[i] != b[j] {
				change++
			}
			last, row[j+1] = row[j+1], min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// didYouMean returns advice for a key with a word that is not a known one.
func didYouMean(key, word string, known []string) string {
	slices.Sort(known)
	switch meant := nearest(word, known); {
	case len(known) == 0:
		return "leave " + key + " out: there is none"
	case meant != "":
		return fmt.Sprintf("did you mean %q? There are %s", meant, list(known))
	}
	return "there are " + list(known)
}

// list joins words, and counts those after the twelfth.
func list(words []string) string {
	const most = 12
	more := ""
	if len(words) > most {
		more = fmt.Sprintf(" and %d more", len(words)-most)
		words = words[:most]
	}
	return strings.Join(words, ", ") + more
}
