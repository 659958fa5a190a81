package accounts

import (
	"net/http"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/keywords"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/search"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// searchUsers answers with the users who match keywords, or with their number
// (codalab/rest/users.py: fetch_users).
func (s *Accounts) searchUsers(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	q, err := keywords.Parse(r.URL.Query()["keywords"])
	if err != nil {
		return search.Error(err)
	}
	if err := checkUserKeys(u, q); err != nil {
		return err
	}
	leave, err := s.config.Access.TakeSearch(ctx, u)
	if err != nil {
		return err
	}
	defer leave()
	if q.Aggregate() {
		n, err := s.config.Store.CountUsers(ctx, q)
		leave()
		if err != nil {
			return search.Error(err)
		}
		return search.WriteNumber(w, "results", q, n)
	}
	q.Limit = min(q.Limit, store.MaxFound+1)
	found, err := s.config.Store.SearchUsers(ctx, q)
	leave() // a slow client keeps no place
	if err == nil {
		err = search.CheckFound(len(found))
	}
	if err != nil {
		return search.Error(err)
	}
	objects := []codalab.Object{}
	for _, other := range found {
		objects = append(objects, present.UserObject(u, other))
	}
	return rest.WriteDocument(w, objects, nil)
}

// checkUserKeys refuses keys that only root may search by. CodaLab's own server has a list of keys for other
// users (codalab/rest/users.py: USER_ACCESSIBLE_KEYWORDS), but by mistake wants each keyword to have all of
// them, and so refuses all their searches, even "cl uls" without words. This server keeps the promise of
// "cl uls --help": other users search by the attributes that they can see, and only root by shares of
// quotas and the last login. disk_used is in the list, but other users cannot see it, and a search by it
// would give it away.
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
