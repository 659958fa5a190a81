package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is the result of a check.
type Verdict string

// The verdicts. A first job runs in spite of warnings.
const (
	OK      Verdict = "ok"
	Warning Verdict = "warning"
	Failed  Verdict = "failed"
)

// Check is the result for one thing that a first job needs.
type Check struct {
	// Name is a key of the configuration, such as "queue.gpu.partition", or another
	// word where the check is about no key.
	Name    string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	// Found is the finding, Do the advice about it. Neither ends with a full stop.
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
	// Unreachable is set where something did not answer: a later try may go well.
	Unreachable bool `json:"away,omitempty"`
}

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
func HasFailed(checks []Check) (one, allUnreachable bool) {
	allUnreachable = true
	for _, c := range checks {
		if c.Verdict == Failed {
			one, allUnreachable = true, allUnreachable && c.Unreachable
		}
	}
	return one, one && allUnreachable
}

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
