package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/cmd/internal/grid"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// stateMissing is shown as the state of a member without a run.
const stateMissing = "missing"

// memberView is a member of a sweep with its newest run, in JSON.
type memberView struct {
	UUID     string            `json:"uuid,omitempty"`
	State    string            `json:"state"`
	Settings map[string]string `json:"settings"`
	Fields   map[string]any    `json:"fields,omitempty"`
}

// sweepView is a sweep in JSON.
type sweepView struct {
	Sweep       string         `json:"sweep"`
	UUID        string         `json:"uuid"`
	Command     string         `json:"command"`
	MaxParallel int            `json:"max_parallel,omitempty"`
	States      map[string]int `json:"states"`
	Members     []memberView   `json:"members"`
}

// show shows the members of a sweep: settings, states and fields.
func (v *sweepVerbs) show(ctx context.Context, spec string) error {
	fields, keys := []string{}, sweepKeys()
	if v.fields != "" {
		var err error
		if fields, err = readFields(v.fields); err != nil {
			return err
		}
		keys = shownKeys(append([]string{"tags"}, fields...))
	}
	s, err := v.open(ctx, spec, keys)
	if err != nil {
		return err
	}
	members, names, err := s.shown()
	if err != nil {
		return err
	}
	newest := s.newest()
	values, err := s.fileValues(ctx, slices.Collect(maps.Values(newest)), fields)
	if err != nil {
		return err
	}
	view := sweepView{
		Sweep: s.sheet.Name, UUID: s.sheet.UUID, Command: s.definition.Command, MaxParallel: codalab.MaxParallel(s.sheet.Tags),
		States: map[string]int{}, Members: []memberView{},
	}
	t := table{columns: []column{{name: "uuid"}}}
	for _, name := range slices.Concat(names, []string{"state"}, fields) {
		t.columns = append(t.columns, column{name: name})
	}
	for _, m := range members {
		b, made := newest[m.Key()]
		row, one := showMember(names, m, b, made)
		for _, f := range fields {
			row, one.Fields = append(row, memberField(b, made, f, values)), viewField(one.Fields, b, made, f, values)
		}
		t.rows, view.Members = append(t.rows, row), append(view.Members, one)
		view.States[one.State]++
	}
	switch {
	case v.asJSON:
		return v.printJSON(view)
	case v.csv:
		return v.printCSV(t, members, newest)
	}
	if err := t.print(v.Stdout); err != nil {
		return err
	}
	v.warn("%s", countStates(view.States, len(members)))
	return nil
}

// shown returns the members of a sweep and the names of their settings. Members without a definition are those that have runs.
func (s *sweep) shown() (members []grid.Member, names []string, err error) {
	if s.definition.revision > 0 {
		if members, err = s.definition.members(); err != nil {
			return nil, nil, err
		}
	}
	there := map[string]bool{}
	for _, m := range members {
		there[m.Key()] = true
	}
	for _, b := range sweepRuns(s.sheet) {
		if m := grid.Member(b.Metadata.Settings()); !there[m.Key()] {
			there[m.Key()] = true
			members = append(members, m)
		}
	}
	for _, m := range members {
		for _, setting := range m {
			if !slices.Contains(names, setting.Name) {
				names = append(names, setting.Name)
			}
		}
	}
	return members, names, nil
}

func showMember(names []string, m grid.Member, b client.BundleInfo, made bool) ([]string, memberView) {
	one := memberView{State: stateMissing, Settings: map[string]string{}}
	if made {
		one.UUID, one.State = b.UUID, string(b.State)
	}
	row := []string{shortUUID(one.UUID)}
	for _, s := range m {
		one.Settings[s.Name] = s.Value
	}
	for _, name := range names {
		row = append(row, one.Settings[name])
	}
	return append(row, one.State), one
}

func memberField(b client.BundleInfo, made bool, field string, values map[fileField]any) string {
	switch {
	case !made:
		return ""
	case isFile(field):
		return fileText(values[fileField{b.UUID, field}])
	}
	return cell(b, field)
}

func viewField(fields map[string]any, b client.BundleInfo, made bool, field string, values map[fileField]any) map[string]any {
	if fields == nil {
		fields = map[string]any{}
	}
	switch {
	case !made:
		fields[field] = nil
	case isFile(field):
		fields[field] = values[fileField{b.UUID, field}]
	default:
		fields[field] = fieldOf(b, field)
	}
	return fields
}

// printCSV prints a table with whole uuids.
func (v *sweepVerbs) printCSV(t table, members []grid.Member, newest map[string]client.BundleInfo) error {
	head := make([]string, len(t.columns))
	for i, c := range t.columns {
		head[i] = c.name
	}
	for i, row := range t.rows {
		row[0] = newest[members[i].Key()].UUID
	}
	return v.writeCSV(append([][]string{head}, t.rows...))
}

// countStates counts members by state, the largest number first.
func countStates(states map[string]int, members int) string {
	var parts []string
	for _, state := range slices.SortedFunc(maps.Keys(states), func(a, b string) int {
		if states[a] != states[b] {
			return states[b] - states[a]
		}
		return strings.Compare(a, b)
	}) {
		parts = append(parts, fmt.Sprintf("%d %s", states[state], state))
	}
	return strings.TrimSuffix(termtext.Count(int64(members), "member")+": "+strings.Join(parts, ", "), ": ")
}
