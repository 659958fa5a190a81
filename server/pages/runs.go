package pages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

const (
	// rowsOfAPage is the number of bundles on one page.
	rowsOfAPage = 50
	// myRuns are the keywords of a page without any.
	myRuns = ".mine type=run"
)

// list has the contents of runs.html.
type list struct {
	// Query has the keywords, as cl search reads them.
	Query string
	// Rows have a cell for each of the values that the reader has chosen.
	Rows   []member
	Values valueColumns
	// Right reports for each of these values whether all are numbers.
	Right []bool
	// Choosing is set if the page has the form that chooses values.
	Choosing bool
	// Page begins at 0; Next is set if there may be another one.
	Page int
	Next bool
	// Matches is the number of all matches; empty if the keywords have none.
	Matches string
	// Problem is the server's sentence about the keywords.
	Problem string
	// Done is a sentence about the last action.
	Done string
}

// Here is the address of a page of the list.
func (l list) Here(path string, page int) string {
	q := url.Values{"q": {l.Query}}
	if page > 0 {
		q.Set("page", strconv.Itoa(page))
	}
	return path + "?" + q.Encode()
}

// words are the keywords of the page: the newest bundles first. The user's own come last: the last of two words of one kind holds.
func (l list) words() ([]string, error) {
	own, err := codalab.SplitWords(l.Query)
	words := []string{".last", ".limit=" + strconv.Itoa(rowsOfAPage)}
	if l.Page > 0 {
		words = append(words, ".offset="+strconv.Itoa(l.Page*rowsOfAPage))
	}
	return append(words, own...), err
}

// Before is the number of the page before this one.
func (l list) Before() int { return l.Page - 1 }

// After is Before for the next page.
func (l list) After() int { return l.Page + 1 }

// ofOrder matches a keyword that asks for an order.
var ofOrder = regexp.MustCompile(`=\.sort-?$|^\.last$`)

// Headings are the heads of the columns behind the name. Those with a key of cl search sort by it: the largest first, and then
// the smallest.
func (l list) Headings() []heading {
	words, err := codalab.SplitWords(l.Query)
	order, rest := "", []string{}
	for _, word := range words {
		if ofOrder.MatchString(word) {
			order = word
		} else {
			rest = append(rest, word)
		}
	}
	sorted := map[string]string{"": "descending", ".last": "descending"}[order]
	all, keys := []heading{{Label: "Name"}, {Label: "State"}}, []string{"name", "state"}
	for i, path := range l.Values.Chosen {
		all, keys = append(all, heading{Label: path, Number: l.Right[i]}), append(keys, sortKey(path))
	}
	// An order by time would leave out the runs that have not run.
	all = append(all, heading{Label: "Command"}, heading{Label: "Owner"}, heading{Label: "Ran", Number: true}, heading{Label: "Size", Number: true}, heading{Label: "Made"})
	keys = append(keys, "", "", "", "data_size", "created")
	for i, key := range keys {
		if key == "" || err != nil {
			continue
		}
		h, word := &all[i], key+"=.sort-"
		switch {
		case order == word, key == "created" && sorted != "":
			h.Sorted, word = "descending", key+"=.sort"
		case order == key+"=.sort":
			h.Sorted = "ascending"
		}
		h.Address = list{Query: codalab.JoinWords(append(slices.Clone(rest), word))}.Here("/runs", 0)
	}
	return all
}

// sortKey is the key by which a search sorts by a value; empty for a path of which the index has no values, as of a whole file.
func sortKey(path string) string {
	if c, ok := codalab.ParseComparison(path + "=.sort"); !ok || c.Key != path || !strings.Contains(path, ":") {
		return ""
	}
	return path
}

// OnlyWith is the value by which the list is sorted, so that bundles without one are not in it; empty for none.
func (l list) OnlyWith() string {
	words, _ := codalab.SplitWords(l.Query)
	for _, word := range slices.Backward(words) {
		if ofOrder.MatchString(word) {
			key, _, _ := strings.Cut(word, "=.sort")
			if strings.HasPrefix(key, "/") {
				return key
			}
			return ""
		}
	}
	return ""
}

// Choose is the address of the page with the form that chooses values.
func (l list) Choose() string { return l.Here("/runs", l.Page) + "&choose=1" }

// CL is the command that shows the same.
func (l list) CL() string {
	words, err := l.words()
	if err != nil {
		return ""
	}
	return codalab.JoinWords(append([]string{"cl", "search"}, words...))
}

// row is a bundle in a list.
type row struct {
	client.BundleInfo
	// Why is a sentence about the state.
	Why string
}

// Name is the bundle's name.
func (r row) Name() string { return r.Metadata.String("name") }

// OwnerName is the name of the bundle's owner; empty if that is hidden.
func (r row) OwnerName() string {
	if r.Owner == nil {
		return ""
	}
	return r.Owner.UserName
}

// Created is the time at which the bundle was made.
func (r row) Created() time.Time { return r.Metadata.Time("created") }

// Ran is the time for which the command has run; empty if it has not.
func (r row) Ran() string {
	seconds := r.Metadata.Float("time")
	if seconds <= 0 {
		return ""
	}
	return codalab.FormatDuration(time.Duration(seconds * float64(time.Second)))
}

// why is a sentence about a bundle's state; empty if there is nothing to say.
func why(b codalab.Bundle) string {
	details := b.Details()
	switch {
	case b.State.Final() && details == b.StateDetails: // which says no more than the state
		return ""
	case details == "" && b.State.OnWorker():
		return b.Metadata.String("run_status")
	}
	return details
}

// runs shows a search for bundles, at first for the user's runs.
func (p *Pages) runs(v *visit) error {
	l, err := p.listed(v)
	if err != nil {
		return err
	}
	l.Done = done(v.URL.Query())
	return p.show(v, http.StatusOK, "runs", "Runs", l)
}

// asked returns the list for which a visit asks, before it is searched.
func asked(v *visit) (list, error) {
	q := v.URL.Query()
	l := list{Query: q.Get("q"), Page: pageNumber(q), Choosing: q.Has("choose")}
	if !q.Has("q") {
		if v.user.UserName == "" {
			return l, rest.Refuse(http.StatusUnauthorized, "Nobody has signed in.")
		}
		l.Query = myRuns
	}
	return l, nil
}

func (p *Pages) listed(v *visit) (list, error) {
	l, err := asked(v)
	if err != nil {
		return l, err
	}
	l.Values = newValueColumns(v)
	l.Right = make([]bool, len(l.Values.Chosen))
	words, err := l.words()
	if err != nil {
		l.Problem = err.Error()
		return l, nil //nolint:nilerr // the page shows it
	}
	found, number, err := p.find(v, words)
	if no, ok := refusedKeywords(err); ok {
		l.Problem = no
		return l, nil
	}
	if err != nil {
		return l, err
	}
	if number != nil {
		l.Matches = string(number)
		return l, nil
	}
	l.Next = len(found) == rowsOfAPage
	return l, l.fill(v, found)
}

// fill makes the rows. Values are those of the server's index, so that no worker is asked.
func (l *list) fill(v *visit, found []client.BundleInfo) error {
	have := values{}
	if chosen := l.Values.Chosen; len(chosen) > 0 || l.Choosing {
		var known []codalab.ValuePath
		var err error
		if have, known, err = readIndex(v, found, chosen); err != nil {
			return err
		}
		l.Values.offer(known)
	}
	for _, b := range found {
		m := member{row: row{b, why(b.Bundle)}}
		for _, path := range l.Values.Chosen {
			m.Cells = append(m.Cells, valueCell(have.of(b.UUID, path)))
		}
		l.Rows = append(l.Rows, m)
	}
	for i, path := range l.Values.Chosen {
		l.Right[i] = isNumeric(members{Columns: l.Values.Chosen, Rows: l.Rows}.cells(path))
	}
	return nil
}

// chooseRunColumns remembers the values that the list shows.
func (p *Pages) chooseRunColumns(v *visit) error {
	typed, wrong, err := p.rememberColumns(v)
	if err != nil {
		return err
	}
	if wrong == nil {
		l, err := asked(v)
		if err == nil {
			rest.Go(v.ResponseWriter, v.Request, l.Here("/runs", l.Page))
		}
		return err
	}
	l, err := p.listed(v)
	if err != nil {
		return err
	}
	l.Choosing, l.Values.Typed, l.Values.Problem = true, typed, codalab.Sentence(wrong.Error())
	return p.show(v, http.StatusBadRequest, "runs", "Runs", l)
}

func (p *Pages) find(v *visit, words []string) ([]client.BundleInfo, json.RawMessage, error) {
	found, number, err := v.api.FindBundles(v.Context(), "", words, []string{client.IncludeOwner}, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("search: %w", err)
	}
	return found, number, nil
}

// act kills, removes or runs again the bundles that a form of the list names.
func (p *Pages) act(v *visit) error {
	form, err := readForm(v)
	if err != nil {
		return err
	}
	return p.once(v, form, func() (answer, error) { return p.actOn(v, form) })
}

func (p *Pages) actOn(v *visit, form url.Values) (answer, error) {
	uuids := once(form["uuid"])
	if len(uuids) == 0 {
		return goTo(afterAction(form, 0)), nil
	}
	if len(uuids) > mostOfAForm {
		return nil, rest.Refuse(http.StatusBadRequest, "One form acts on at most %d bundles.", mostOfAForm)
	}
	switch action := form.Get("action"); action {
	case "kill":
		return p.eachOf(v, form, uuids, func(some []string) error { return v.api.KillBundles(v.Context(), some...) })
	case "remove":
		if form.Get("sure") != "yes" {
			return nil, p.askToRemove(v, form, uuids)
		}
		return p.eachOf(v, form, uuids, func(some []string) error {
			_, err := v.api.DeleteBundles(v.Context(), some, client.DeleteOptions{})
			return err
		})
	case "rerun":
		return p.rerun(v, form, uuids)
	default:
		return nil, rest.Refuse(http.StatusBadRequest, "There is no action '%s'.", action)
	}
}

// removal has the contents of remove.html.
type removal struct {
	UUIDs []string
	// Bundles are the first mostNamed of them that can be read. Size is that of the contents of all.
	Bundles []codalab.Bundle
	Size    int64
	// Next is the address of the page that has sent the form.
	Next string
}

// CL is the command that does the same.
func (r removal) CL() string { return codalab.JoinWords(append([]string{"cl", "rm"}, r.UUIDs...)) }

// Others is the number of bundles that the page does not name.
func (r removal) Others() int { return len(r.UUIDs) - len(r.Bundles) }

// askToRemove asks whether to remove bundles.
func (p *Pages) askToRemove(v *visit, form url.Values, uuids []string) error {
	bundles, err := p.named(v, uuids)
	if err != nil {
		return err
	}
	r := removal{UUIDs: uuids, Next: rest.LocalPath(form.Get("next"))}
	for _, b := range bundles {
		r.Size += b.Metadata.Int("data_size")
		if b.State != "" && len(r.Bundles) < mostNamed {
			r.Bundles = append(r.Bundles, b)
		}
	}
	return p.show(v, http.StatusOK, "remove", "Remove", r)
}

// backTo is the address to which an action leads: that of the page that has sent its form, or the list. There is no query if the
// form names none of these.
func backTo(form url.Values) (path string, q url.Values) {
	path, query, _ := strings.Cut(form.Get("next"), "?")
	list := path == "/runs" || strings.HasPrefix(path, "/sweeps/")
	q, err := url.ParseQuery(query)
	if err != nil || !list && (form.Get("action") == "remove" || !strings.HasPrefix(path, "/bundles/")) {
		return "/runs", nil
	}
	return path, q
}

// afterAction is the address of the page after an action on n bundles.
func afterAction(form url.Values, n int) string {
	path, q := backTo(form)
	if q == nil {
		return path
	}
	q.Set("done", form.Get("action"))
	q.Set("n", strconv.Itoa(n))
	return path + "?" + q.Encode()
}

// done is the sentence about the action that has led to a page; empty for none.
func done(q url.Values) string {
	n, err := strconv.Atoi(q.Get("n"))
	if err != nil {
		return ""
	}
	return didTo(q.Get("done"), n)
}

// didTo is the sentence about an action on n bundles; empty for no action.
func didTo(action string, n int) string {
	did := map[string]string{"kill": "will be killed.", "remove": "removed.", "rerun": "will run again."}[action]
	switch {
	case did == "":
		return ""
	case n == 0:
		return "No bundle was chosen."
	case n == 1:
		return "1 bundle " + did
	}
	return strconv.Itoa(n) + " bundles " + did
}
