package search

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/spelling"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/interpret"
	"github.com/cl-slurm/cl-slurm/server/keywords"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Limit is the time within which the database must answer a search. Anybody may search, and a condition
// that no index serves reads all bundles.
const Limit = 20 * time.Second

// Bounded ends a search after Limit.
func Bounded(search rest.Handler) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request, u store.User) error {
		ctx, done := context.WithTimeout(r.Context(), Limit)
		defer done()
		err := search(w, r.WithContext(ctx), u)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return rest.Refuse(http.StatusBadRequest, "The search takes longer than %s; add a condition, such as .mine", codalab.FormatDuration(Limit))
		}
		return err
	}
}

// Read reads the query parameters keywords. The groups in it become uuids.
func Read(ctx context.Context, a access.Access, u store.User, words []string) (keywords.Query, error) {
	q, err := keywords.Parse(words)
	if err != nil {
		return keywords.Query{}, Error(err)
	}
	for _, t := range q.Terms {
		if t.Key != "group" {
			continue
		}
		for i, spec := range t.Values {
			group, err := a.VisibleGroup(ctx, u, string(spec))
			if err != nil {
				return keywords.Query{}, err
			}
			t.Values[i] = keywords.Value(group)
		}
	}
	q.Limit = min(q.Limit, store.MaxFound+1)
	return q, nil
}

// Bundles returns the bundles that a search finds; or the number that it asks for, which is nil for the total of
// nothing.
func Bundles(ctx context.Context, a access.Access, u store.User, q keywords.Query) (uuids []string, number any, err error) {
	if q.UsesValues() && a.SettleValues != nil {
		a.SettleValues(ctx)
	}
	leave, err := a.TakeSearch(ctx, u)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	if q.Aggregate() {
		number, err = a.Store.MeasureBundles(ctx, u, q)
	} else {
		uuids, err = a.Store.SearchBundles(ctx, u, q)
	}
	if err == nil {
		err = CheckFound(len(uuids))
	}
	if zero := json.Number("0"); err == nil && len(uuids) == 0 && (number == nil || number == zero) {
		err = mistake(q)
	}
	return uuids, number, Error(err)
}

// mistake refuses a search that has found nothing if it has a keyword that finds nothing in any store.
func mistake(q keywords.Query) error {
	if text := codalab.SearchMistake(q.Words, spelling.Nearest); text != "" {
		return keywords.Refuse("%s", text)
	}
	return nil
}

// Worksheets returns the worksheets that a search by words finds.
func Worksheets(ctx context.Context, a access.Access, u store.User, words []string) ([]store.Worksheet, error) {
	q, err := Read(ctx, a, u, words)
	if err != nil {
		return nil, err
	}
	leave, err := a.TakeSearch(ctx, u)
	if err != nil {
		return nil, err
	}
	defer leave()
	found, err := a.Store.SearchWorksheets(ctx, u, q)
	if err == nil {
		err = CheckFound(len(found))
	}
	return found, Error(err)
}

// Error makes a refusal of a search that cannot be read.
func Error(err error) error {
	if no, ok := errors.AsType[*keywords.Error](err); ok {
		return rest.Refuse(http.StatusBadRequest, "%s", no.Error())
	}
	return err
}

// CheckFound refuses a search with too many results. The client could take a part of them for the whole.
func CheckFound(n int) error {
	if n > store.MaxFound {
		return rest.Refuse(http.StatusBadRequest, "More than %d match; ask for them in parts, with .limit and .offset", store.MaxFound)
	}
	return nil
}

// WriteNumber answers with the number that a search asks for; nil for the total of nothing.
func WriteNumber(w http.ResponseWriter, name string, q keywords.Query, n any) error {
	if n != nil && q.Format != "" {
		n = interpret.ApplyPost(q.Format, n)
	}
	return rest.WriteMeta(w, name, n)
}
