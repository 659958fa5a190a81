package pages

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// cell is a value in a column of a table of runs.
type cell struct {
	Text string
	// Number is nil if the value is no finite number.
	Number *float64
	// There is false for a run that has no such value.
	There bool
}

func textCell(text string) cell { return cell{text, codalab.Number(text), true} }

// valueCell is a value of a result file.
func valueCell(value any) cell {
	text, number, ok := codalab.ScalarValue(value)
	return cell{text, number, ok}
}

// member is a run in a table of runs, with a cell for each column.
type member struct {
	row
	Cells []cell
}

// The columns that all tables of runs have are named by words. Those of settings begin with settingPrefix, so that a
// setting may have any name; those of values in files begin with a slash.
const (
	settingPrefix = "setting:"
	columnName    = "name"
	columnState   = "state"
	columnRan     = "ran"
	columnMade    = "made"
)

// members is a table of runs with their settings and values.
type members struct {
	// Columns are the keys of the columns of Cells: first the settings that differ, then the values of files.
	Columns []string
	// Same are the settings that all runs share.
	Same []codalab.Setting
	Rows []member
}

// label is the name of a column for people.
func label(column string) string {
	name, _ := strings.CutPrefix(column, settingPrefix)
	return name
}

// newest returns the newest run of each member of a sweep: a later run with the same settings takes the place of an earlier one.
// The list has the order of the sweep's worksheet.
func newest(sweep string, bundles []client.BundleInfo) []client.BundleInfo {
	var runs []client.BundleInfo
	places, seen := map[string]int{}, map[string]bool{}
	for _, b := range bundles {
		if b.Metadata.Sweep() != sweep || seen[b.UUID] {
			continue
		}
		seen[b.UUID] = true
		key := strings.Join(codalab.SweepTags(sweep, b.Metadata.Settings()), "\n")
		if i, ok := places[key]; ok {
			runs[i] = b
			continue
		}
		places[key] = len(runs)
		runs = append(runs, b)
	}
	return runs
}

// newMembers makes a table of runs. value returns a value of a file.
func newMembers(runs []client.BundleInfo, genpaths []string, value func(uuid, genpath string) any) members {
	var t members
	texts := make([]map[string]string, len(runs))
	var names []string
	for i, b := range runs {
		texts[i] = map[string]string{}
		for _, s := range b.Metadata.Settings() {
			texts[i][s.Name] = s.Value
			if !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	var differ []string
	for _, name := range names {
		first, there := texts[0][name]
		if there && len(runs) > 1 && !slices.ContainsFunc(texts, func(of map[string]string) bool { v, ok := of[name]; return !ok || v != first }) {
			t.Same = append(t.Same, codalab.Setting{Name: name, Value: first})
			continue
		}
		differ = append(differ, name)
		t.Columns = append(t.Columns, settingPrefix+name)
	}
	t.Columns = append(t.Columns, genpaths...)
	for i, b := range runs {
		m := member{row: row{b, why(b.Bundle)}}
		for _, name := range differ {
			text, there := texts[i][name]
			c := textCell(text)
			c.There = there
			m.Cells = append(m.Cells, c)
		}
		for _, g := range genpaths {
			m.Cells = append(m.Cells, valueCell(value(b.UUID, g)))
		}
		t.Rows = append(t.Rows, m)
	}
	return t
}

// cells returns the cells of a column; nil if there is no such column.
func (t members) cells(column string) []cell {
	var of func(member) cell
	i := slices.Index(t.Columns, column)
	switch {
	case i >= 0:
		of = func(m member) cell { return m.Cells[i] }
	case column == columnName:
		of = func(m member) cell { return cell{Text: m.Name(), There: true} }
	case column == columnState:
		of = func(m member) cell { return cell{Text: string(m.State), There: true} }
	case column == columnRan:
		of = func(m member) cell { return positive(m.Metadata.Float("time")) }
	case column == columnMade:
		of = func(m member) cell { return positive(m.Metadata.Float("created")) }
	default:
		return nil
	}
	list := make([]cell, len(t.Rows))
	for n, m := range t.Rows {
		list[n] = of(m)
	}
	return list
}

func positive(n float64) cell {
	return cell{strconv.FormatFloat(n, 'g', 6, 64), &n, n > 0}
}

// sort sorts the runs by a column: numbers before texts, and those without a value last, whatever the direction. An unknown column
// changes nothing.
func (t members) sort(column string, descending bool) {
	list := t.cells(column)
	if list == nil {
		return
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareCells(list[a], list[b], descending) })
	rows := slices.Clone(t.Rows)
	for to, from := range order {
		t.Rows[to] = rows[from]
	}
}

func compareCells(a, b cell, descending bool) int {
	sign := 1
	if descending {
		sign = -1
	}
	rank := func(c cell) int {
		switch {
		case !c.There:
			return 2
		case c.Number == nil:
			return 1
		}
		return 0
	}
	switch {
	case rank(a) != rank(b):
		return rank(a) - rank(b)
	case rank(a) == 0:
		return sign * cmp.Compare(*a.Number, *b.Number)
	}
	return sign * strings.Compare(a.Text, b.Text)
}

// best returns the row with the best number in a column of values; -1 if no ready run has one.
func (t members) best(column string) int {
	found := -1
	list := t.cells(column)
	for i, c := range list {
		if c.Number == nil || !c.There || t.Rows[i].State != codalab.StateReady {
			continue
		}
		if found < 0 || (*c.Number < *list[found].Number) == codalab.LowestIsBest(column) && *c.Number != *list[found].Number {
			found = i
		}
	}
	return found
}

// states counts the runs by state, the most frequent first: "3 ready, 1 failed".
func (t members) states() string {
	counts := map[codalab.State]int{}
	var order []codalab.State
	for _, m := range t.Rows {
		if counts[m.State]++; counts[m.State] == 1 {
			order = append(order, m.State)
		}
	}
	slices.SortStableFunc(order, func(a, b codalab.State) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(string(a), string(b)))
	})
	var parts []string
	for _, s := range order {
		parts = append(parts, strconv.Itoa(counts[s])+" "+string(s))
	}
	return strings.Join(parts, ", ")
}

// started is the time at which the first of the runs began; zero if none has.
func (t members) started() time.Time {
	var first time.Time
	for _, m := range t.Rows {
		if at := m.Metadata.Time("started"); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// sorting is an order of a table.
type sorting struct {
	Column     string
	Descending bool
}

func readSorting(q url.Values) sorting { return sorting{q.Get("sort"), q.Get("desc") == "1"} }

// heading is the head of a column: a link that sorts by it.
type heading struct {
	Label, Address string
	// Sorted is the value of aria-sort; empty for none.
	Sorted string
	Number bool
}

// heading returns the head of a column on a page with this path. A column that is sorted already gets the other direction.
func (s sorting) heading(path, column, label string, number bool) heading {
	h := heading{Label: label, Number: number}
	q := url.Values{"sort": {column}}
	if s.Column == column {
		h.Sorted = "ascending"
		if s.Descending {
			h.Sorted = "descending"
		} else {
			q.Set("desc", "1")
		}
	}
	h.Address = path + "?" + q.Encode()
	return h
}

// isNumeric reports whether a column has numbers only.
func isNumeric(list []cell) bool {
	return slices.ContainsFunc(list, func(c cell) bool { return c.There }) &&
		!slices.ContainsFunc(list, func(c cell) bool { return c.There && c.Number == nil })
}
