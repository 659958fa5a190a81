package cltest

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Difference is an intended difference.
type Difference struct {
	// Step matches the step's line in the script, Stock a line that only CodaLab's own program
	// prints, and Ours a line that only ours prints. Stock or Ours may be empty.
	Step, Stock, Ours string
	// Because is the reason for the difference.
	Because string
}

// Table has the differences that a test allows, and records which of them have occurred. Several
// tests may use it at once.
type Table struct {
	rows []row

	mu  sync.Mutex
	met map[int]bool
}

// row is a Difference, compiled.
type row struct {
	Difference
	step, stock, ours *regexp.Regexp
}

// NewTable returns a table of which no row is met. Patterns that are wrong panic.
func NewTable(differences []Difference) *Table {
	table := &Table{met: map[int]bool{}}
	for _, d := range differences {
		r := row{Difference: d, step: regexp.MustCompile(d.Step)}
		if d.Stock != "" {
			r.stock = regexp.MustCompile(`^(?:` + d.Stock + `)$`)
		}
		if d.Ours != "" {
			r.ours = regexp.MustCompile(`^(?:` + d.Ours + `)$`)
		}
		table.rows = append(table.rows, r)
	}
	return table
}

// allows reports whether a line is in the table that only stock, or only ours, prints.
func (m *Table) allows(s step, stock bool, line string) bool {
	for i, r := range m.rows {
		pattern := r.ours
		if stock {
			pattern = r.stock
		}
		if pattern != nil && r.step.MatchString(s.text) && pattern.MatchString(line) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.met[i] = true
			return true
		}
	}
	return false
}

// CheckAllMet fails the test for rows that no step has shown.
func (m *Table) CheckAllMet(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, r := range m.rows {
		if !m.met[i] {
			t.Errorf("no step shows this difference any more: %+v", r.Difference)
		}
	}
}

// unordered matches the steps whose lines cl prints in the order of a Python set or of a database.
const unordered = `^\w+ (rm|gls)\b`

func sortLines(text string) string {
	return strings.Join(slices.Sorted(strings.SplitSeq(text, "\n")), "\n")
}

// Compare compares the outputs of a script's steps with CodaLab's own program and with ours. It
// fails the test at each step that prints lines which no table allows, and logs the number of such
// steps by cl's commands.
func Compare(t *testing.T, script Script, stock, ours []string, tables ...*Table) {
	t.Helper()
	differing := map[string]int{}
	total := 0
	for i, s := range script.steps[:min(len(stock), len(ours))] {
		if left := compareStep(s, stock[i], ours[i], tables); left != "" {
			t.Errorf("%s: %s (- CodaLab's own, + ours)%s", s.where, s.text, left)
			differing[s.verb()]++
			total++
		}
	}
	if total == 0 {
		return
	}
	var verbs strings.Builder
	for _, verb := range slices.SortedFunc(maps.Keys(differing), func(a, b string) int {
		return cmp.Or(differing[b]-differing[a], strings.Compare(a, b))
	}) {
		fmt.Fprintf(&verbs, " %s %d", verb, differing[verb])
	}
	t.Logf("%d of %d steps of %s differ:%s", total, len(script.steps), script.Name, verbs.String())
}

// compareStep returns the lines that differ and that no table allows.
func compareStep(s step, stock, ours string, tables []*Table) string {
	if regexp.MustCompile(unordered).MatchString(s.text) {
		stock, ours = sortLines(stock), sortLines(ours)
	}
	gone, come := lineDifference(stock, ours)
	var left strings.Builder
	for _, line := range gone {
		if !slices.ContainsFunc(tables, func(m *Table) bool { return m.allows(s, true, line) }) {
			left.WriteString("\n- " + line)
		}
	}
	for _, line := range come {
		if !slices.ContainsFunc(tables, func(m *Table) bool { return m.allows(s, false, line) }) {
			left.WriteString("\n+ " + line)
		}
	}
	return left.String()
}

// lineDifference returns the lines of a that are not in b, and those of b that are not in a, by
// a longest common subsequence.
func lineDifference(a, b string) (gone, come []string) {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	common := make([][]int, len(x)+1)
	for i := range common {
		common[i] = make([]int, len(y)+1)
	}
	for i := range slices.Backward(x) {
		for j := range slices.Backward(y) {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if x[i] == y[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(x) || j < len(y) {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			i, j = i+1, j+1
		case j == len(y) || (i < len(x) && common[i+1][j] >= common[i][j+1]):
			gone, i = append(gone, x[i]), i+1
		default:
			come, j = append(come, y[j]), j+1
		}
	}
	return gone, come
}
