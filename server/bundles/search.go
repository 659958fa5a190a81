package bundles

import (
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/search"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// searchBundles answers with the bundles that match keywords, or with their number or total
// (codalab/rest/bundles.py: _fetch_bundles).
func (s *Bundles) searchBundles(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	words := r.URL.Query()["keywords"]
	if u.Bounded() { // a worker manager, which must not learn of other bundles by their number
		words = append(words, "state="+string(codalab.StateStaged), "bundle_type="+string(codalab.TypeRun))
	}
	q, err := search.Read(ctx, s.config.Access, u, words)
	if err != nil {
		return err
	}
	uuids, number, err := search.Bundles(ctx, s.config.Access, u, q)
	if err != nil {
		return err
	}
	if q.Aggregate() {
		return search.WriteNumber(w, "result", q, number)
	}
	if uuids, err = s.withDescendants(r, u, uuids); err != nil {
		return err
	}
	return s.writeBundles(w, r, u, uuids, nil)
}
