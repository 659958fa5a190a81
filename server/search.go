package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/keywords"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// searchTime is how long the database may take for a search. Anybody may search, and a condition
// that no index serves reads all bundles.
const searchTime = 20 * time.Second

// bounded ends a search after searchTime.
func bounded(search rest.Handler) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request, u store.User) error {
		ctx, done := context.WithTimeout(r.Context(), searchTime)
		defer done()
		err := search(w, r.WithContext(ctx), u)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return rest.Refuse(http.StatusBadRequest, "The search takes longer than %s; add a condition, such as .mine", codalab.FormatDuration(searchTime))
		}
		return err
	}
}

// readSearch reads the query parameters keywords. The groups in it become uuids.
func (s *Server) readSearch(ctx context.Context, u store.User, words []string) (keywords.Query, error) {
	q, err := keywords.Parse(words)
	if err != nil {
		return keywords.Query{}, searchError(err)
	}
	for _, t := range q.Terms {
		if t.Key != "group" {
			continue
		}
		for i, spec := range t.Values {
			group, err := s.access.VisibleGroup(ctx, u, string(spec))
			if err != nil {
				return keywords.Query{}, err
			}
			t.Values[i] = keywords.Value(group)
		}
	}
	q.Limit = min(q.Limit, store.MaxFound+1)
	return q, nil
}

// searchError makes a refusal of a search that cannot be read.
func searchError(err error) error {
	var no *keywords.Error
	if errors.As(err, &no) {
		return rest.Refuse(http.StatusBadRequest, "%s", no.Error())
	}
	return err
}

// checkFound refuses to answer with a part of what the client asked for, which it could take for all
// of it.
func checkFound(n int) error {
	if n > store.MaxFound {
		return rest.Refuse(http.StatusBadRequest, "More than %d match; ask for them in parts, with .limit and .offset", store.MaxFound)
	}
	return nil
}

// writeNumber answers with the number that a search asks for.
func writeNumber(w http.ResponseWriter, name string, q keywords.Query, n *keywords.Number) error {
	if n == nil { // the total of nothing
		return rest.WriteMeta(w, name, nil)
	}
	return rest.WriteMeta(w, name, keywords.Format(q.Format, *n))
}

// searchBundles answers with the bundles that match keywords, or with their number or total
// (codalab/rest/bundles.py: _fetch_bundles).
func (s *Server) searchBundles(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	q, err := s.readSearch(ctx, u, r.URL.Query()["keywords"])
	if err != nil {
		return err
	}
	if q.Aggregate() {
		n, err := s.Store.MeasureBundles(ctx, u, q)
		if err != nil {
			return searchError(err)
		}
		return writeNumber(w, "result", q, n)
	}
	uuids, err := s.Store.SearchBundles(ctx, u, q)
	if err == nil {
		err = checkFound(len(uuids))
	}
	if err != nil {
		return searchError(err)
	}
	if uuids, err = s.withDescendants(r, uuids); err != nil {
		return err
	}
	return s.writeBundles(w, r, u, uuids)
}

// searchWorksheets answers with the worksheets that match keywords (codalab/rest/worksheets.py:
// fetch_worksheets).
func (s *Server) searchWorksheets(w http.ResponseWriter, r *http.Request, u store.User) error {
	q, err := s.readSearch(r.Context(), u, r.URL.Query()["keywords"])
	if err != nil {
		return err
	}
	found, err := s.Store.SearchWorksheets(r.Context(), u, q)
	if err == nil {
		err = checkFound(len(found))
	}
	if err != nil {
		return searchError(err)
	}
	return s.writeWorksheets(w, r, u, found)
}

// searchUsers answers with the users who match keywords, or with their number
// (codalab/rest/users.py: fetch_users).
func (s *Server) searchUsers(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	q, err := keywords.Parse(r.URL.Query()["keywords"])
	if err != nil {
		return searchError(err)
	}
	if err := checkUserKeys(u, q); err != nil {
		return err
	}
	if q.Aggregate() {
		n, err := s.Store.CountUsers(ctx, q)
		if err != nil {
			return searchError(err)
		}
		return writeNumber(w, "results", q, n)
	}
	q.Limit = min(q.Limit, store.MaxFound+1)
	found, err := s.Store.SearchUsers(ctx, q)
	if err == nil {
		err = checkFound(len(found))
	}
	if err != nil {
		return searchError(err)
	}
	objects := []codalab.Object{}
	for _, other := range found {
		objects = append(objects, userObject(u, other))
	}
	return rest.WriteDocument(w, objects, nil)
}

// checkUserKeys refuses keys of which only root may know. CodaLab's own server has a list of keys for
// others (codalab/rest/users.py: USER_ACCESSIBLE_KEYWORDS), but wants each keyword to have all of
// them, and so refuses every search of theirs, "cl uls" without words too. What "cl uls --help"
// promises is this: others search by what they see of a user, and the shares of quotas and the last
// login are for root. disk_used is in the list, but others do not see it of a user; a search by it
// would tell.
func checkUserKeys(u store.User, q keywords.Query) error {
	if u.Root() {
		return nil
	}
	open := []string{
		keywords.Word, keywords.Any, "id", "user_id", "user_name", "name", "first_name", "last_name", "affiliation", "url",
		"date_joined", ".joined_before", ".joined_after",
	}
	var keys []string
	for _, t := range q.Terms {
		keys = append(keys, t.Key)
	}
	if q.Sort != nil {
		keys = append(keys, q.Sort.Key)
	}
	for _, key := range keys {
		if !slices.Contains(open, key) {
			return rest.Refuse(http.StatusForbidden, "You don't have access to search for these fields")
		}
	}
	return nil
}
