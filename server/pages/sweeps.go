package pages

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

const (
	// sweepsOfAPage is the number of sweeps on one page, and membersOfAPage that of runs of a sweep.
	sweepsOfAPage  = 10
	membersOfAPage = 100
)

// memberKeys are the keys of metadata that a table of a sweep's runs needs.
func memberKeys() []string {
	return []string{"name", "tags", "created", "started", "time", "failure_message", "run_status"}
}

// sweepRow is a sweep in the list of sweeps.
type sweepRow struct {
	UUID, Name, Command string
	Members             int
	States              string
	Started             time.Time
	// Best is the best of the values in Column; empty for none.
	Best, BestUUID string
}

// sweepsPage has the contents of sweeps.html.
type sweepsPage struct {
	Rows []sweepRow
	// Column is the value of a file of which the list shows the best.
	Column string
	Page   int
	Next   bool
}

// Before is the number of the page before this one.
func (s sweepsPage) Before() int { return s.Page - 1 }

// After is Before for the next page.
func (s sweepsPage) After() int { return s.Page + 1 }

// sweeps lists the user's sweeps, the newest first.
func (p *Pages) sweeps(v *visit) error {
	if v.user.UserName == "" {
		return rest.Refuse(http.StatusUnauthorized, "Nobody has signed in.")
	}
	page := sweepsPage{Page: pageNumber(v.URL.Query())}
	if chosen := columns(v.Request); len(chosen) > 0 {
		page.Column = chosen[0]
	}
	found, err := v.api.SearchWorksheets(v.Context(), "tag="+codalab.SweepMark, ".mine", ".limit="+strconv.Itoa(sweepsOfAPage+1), ".offset="+strconv.Itoa(page.Page*sweepsOfAPage), "id=.sort-")
	if err != nil {
		return fmt.Errorf("search for sweeps: %w", err)
	}
	page.Next = len(found) > sweepsOfAPage
	for _, w := range found[:min(len(found), sweepsOfAPage)] {
		r, err := p.sweepRow(v, w, page.Column)
		if err != nil {
			return err
		}
		page.Rows = append(page.Rows, r)
	}
	return p.show(v, http.StatusOK, "sweeps", "Sweeps", page)
}

func pageNumber(q url.Values) int {
	n, _ := strconv.Atoi(q.Get("page"))
	return max(0, min(n, 1_000_000))
}

// sweepCommand is the command of a sweep, which is in its worksheet's title.
func sweepCommand(w client.Worksheet) string {
	if w.Title == nil {
		return ""
	}
	return strings.TrimPrefix(*w.Title, "Sweep: ")
}

func (p *Pages) sweepRow(v *visit, w client.Worksheet, column string) (sweepRow, error) {
	sheet, err := v.api.WorksheetBundles(v.Context(), w.UUID, "name", "tags", "started")
	if err != nil {
		return sweepRow{}, fmt.Errorf("show sweep: %w", err)
	}
	runs := newest(w.UUID, sheet.Bundles)
	var shown []string
	if column != "" {
		shown = []string{column}
	}
	have, _, err := readIndex(v, runs, shown)
	if err != nil {
		return sweepRow{}, err
	}
	t := newMembers(runs, shown, have.of)
	r := sweepRow{UUID: w.UUID, Name: w.Name, Command: sweepCommand(w), Members: len(t.Rows), States: t.states(), Started: t.started()}
	if i := t.best(column); i >= 0 {
		r.Best, r.BestUUID = t.cells(column)[i].Text, t.Rows[i].UUID
	}
	return r, nil
}

// sweepPage has the contents of sweep.html.
type sweepPage struct {
	client.Worksheet
	Command string
	Table   members
	// Shown are the rows of this page of the table.
	Shown []member
	// Right reports for each column of the table whether it has numbers only.
	Right []bool
	// Values are the values of files that the table has.
	Values valueColumns
	Sort   sorting
	Page   int
	// X and Y are the columns of the scatter plot.
	X, Y     string
	Scatter  *scatter
	Parallel *parallel
	Best     *member
	Done     string
}

// States counts the members by state.
func (s sweepPage) States() string { return s.Table.states() }

// Count is the number of members.
func (s sweepPage) Count() string { return termtext.Count(int64(len(s.Table.Rows)), "run") }

// Running reports whether some of the members have not ended.
func (s sweepPage) Running() bool {
	return slices.ContainsFunc(s.Table.Rows, func(m member) bool { return !m.State.Final() })
}

// Path is the page's address without its query.
func (s sweepPage) Path() string { return "/sweeps/" + s.UUID }

// Here is the address of a page of the table.
func (s sweepPage) Here(path string, page int) string {
	q := url.Values{}
	for key, value := range map[string]string{"sort": s.Sort.Column, "x": s.X, "y": s.Y} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if s.Sort.Descending {
		q.Set("desc", "1")
	}
	if page > 0 {
		q.Set("page", strconv.Itoa(page))
	}
	return path + "?" + q.Encode()
}

// Before is the number of the page before this one, and After that of the next.
func (s sweepPage) Before() int { return s.Page - 1 }

// After is Before for the next page; 0 if there is none.
func (s sweepPage) After() int {
	if (s.Page+1)*membersOfAPage < len(s.Table.Rows) {
		return s.Page + 1
	}
	return 0
}

// Headings are the heads of the columns.
func (s sweepPage) Headings() []heading {
	list := []heading{s.Sort.heading(s.Path(), columnName, "Run", false), s.Sort.heading(s.Path(), columnState, "State", false)}
	for i, c := range s.Table.Columns {
		list = append(list, s.Sort.heading(s.Path(), c, label(c), s.Right[i]))
	}
	return append(list, s.Sort.heading(s.Path(), columnRan, "Ran", true), s.Sort.heading(s.Path(), columnMade, "Made", false))
}

// plotted are the columns that can be drawn: those of the table, and the time that runs took.
func (s sweepPage) plotted() []string { return append(slices.Clone(s.Table.Columns), columnRan) }

func (s sweepPage) choices(chosen string) []choice {
	var list []choice
	for _, c := range s.plotted() {
		name := label(c)
		if c == columnRan {
			name = "seconds run"
		}
		list = append(list, choice{c, name, c == chosen})
	}
	return list
}

// XChoices are the columns for the horizontal axis.
func (s sweepPage) XChoices() []choice { return s.choices(s.X) }

// YChoices are the columns for the vertical axis.
func (s sweepPage) YChoices() []choice { return s.choices(s.Y) }

// CL is the command that shows the same.
func (s sweepPage) CL() string {
	words := []string{"cl", "sweep", "show", s.UUID}
	if len(s.Values.Chosen) > 0 {
		words = append(words, "-f", strings.Join(s.Values.Chosen, ","))
	}
	return codalab.JoinWords(words)
}

// Again is the command that makes members again that failed.
func (s sweepPage) Again() string {
	return codalab.JoinWords([]string{"cl", "sweep", "add", s.UUID, "--failed"})
}

// openSweep reads a sweep with the values of files that the reader has chosen.
func (p *Pages) openSweep(v *visit) (sweepPage, error) {
	w, err := v.api.WorksheetBundles(v.Context(), v.PathValue("uuid"), memberKeys()...)
	if err != nil {
		return sweepPage{}, fmt.Errorf("show sweep: %w", err)
	}
	q := v.URL.Query()
	s := sweepPage{Worksheet: w, Command: sweepCommand(w), Values: newValueColumns(v), Sort: readSorting(q), Page: pageNumber(q), X: q.Get("x"), Y: q.Get("y")}
	runs := newest(w.UUID, w.Bundles)
	have, known, err := readValues(v, runs, s.Values.Chosen)
	if err != nil {
		return s, err
	}
	s.Values.offer(known)
	s.Table = newMembers(runs, s.Values.Chosen, have.of)
	for _, c := range s.Table.Columns {
		s.Right = append(s.Right, isNumeric(s.Table.cells(c)))
	}
	s.Table.sort(s.Sort.Column, s.Sort.Descending)
	s.Page = min(s.Page, max(0, len(runs)-1)/membersOfAPage)
	s.Shown = s.Table.Rows[s.Page*membersOfAPage : min(len(runs), (s.Page+1)*membersOfAPage)]
	if len(s.Values.Chosen) > 0 {
		if i := s.Table.best(s.Values.Chosen[0]); i >= 0 {
			s.Best = &s.Table.Rows[i]
		}
	}
	return s, nil
}

// draw draws the plots.
func (s *sweepPage) draw() {
	all := s.plotted()
	if !slices.Contains(all, s.X) {
		s.X = all[0]
	}
	if !slices.Contains(all, s.Y) {
		if s.Y = columnRan; len(s.Values.Chosen) > 0 {
			s.Y = s.Values.Chosen[0]
		}
	}
	s.Scatter = newScatter(s.Table, s.X, s.Y)
	if len(s.Values.Chosen) == 0 {
		s.Parallel = newParallel(s.Table, all)
		return
	}
	axes := slices.DeleteFunc(slices.Clone(s.Table.Columns), func(c string) bool { return c == s.Values.Chosen[0] })
	s.Parallel = newParallel(s.Table, append(axes, s.Values.Chosen[0]))
}

// sweep shows a sweep.
func (p *Pages) sweep(v *visit) error {
	s, err := p.openSweep(v)
	if err != nil {
		return err
	}
	s.Done = done(v.URL.Query())
	return p.showSweep(v, http.StatusOK, s)
}

func (p *Pages) showSweep(v *visit, status int, s sweepPage) error {
	s.draw()
	return p.show(v, status, "sweep", s.Name, s)
}

// chooseColumns remembers the values that tables show.
func (p *Pages) chooseColumns(v *visit) error {
	typed, wrong, err := p.rememberColumns(v)
	if err == nil && wrong == nil {
		rest.Go(v.ResponseWriter, v.Request, "/sweeps/"+v.PathValue("uuid"))
	}
	if err != nil || wrong == nil {
		return err
	}
	s, err := p.openSweep(v)
	if err != nil {
		return err
	}
	s.Values.Typed, s.Values.Problem = typed, codalab.Sentence(wrong.Error())
	return p.showSweep(v, http.StatusBadRequest, s)
}

// sweepEvents follows the members of a sweep. Changes of the reader's own runs are told; others' are read anew from time to time.
func (p *Pages) sweepEvents(v *visit) error {
	first, err := p.openSweep(v)
	if err != nil {
		return err
	}
	again := aliveEvery
	if first.Owner != nil && first.Owner.ID == v.user.ID {
		again = 0
	}
	return p.followList(v, again, "sweep", "members", func() (any, error) { return p.openSweep(v) })
}
