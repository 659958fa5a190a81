package bundles

import (
	"net/http"

	"github.com/cl-slurm/cl-slurm/server/search"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// searchBundles answers with the bundles that match keywords, or with their number or total
// (codalab/rest/bundles.py: _fetch_bundles).
func (s *Bundles) searchBundles(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	q, err := search.Read(ctx, s.config.Access, u, r.URL.Query()["keywords"])
	if err != nil {
		return err
	}
	if q.Aggregate() {
		n, err := s.config.Store.MeasureBundles(ctx, u, q)
		if err != nil {
			return search.Error(err)
		}
		return search.WriteNumber(w, "result", q, n)
	}
	uuids, err := s.config.Store.SearchBundles(ctx, u, q)
	if err == nil {
		err = search.CheckFound(len(uuids))
	}
	if err != nil {
		return search.Error(err)
	}
	if uuids, err = s.withDescendants(r, uuids); err != nil {
		return err
	}
	return s.writeBundles(w, r, u, uuids)
}
