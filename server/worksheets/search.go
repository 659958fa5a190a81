package worksheets

import (
	"net/http"

	"github.com/cl-slurm/cl-slurm/server/search"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// searchWorksheets answers with the worksheets that match keywords (codalab/rest/worksheets.py:
// fetch_worksheets).
func (s *Worksheets) searchWorksheets(w http.ResponseWriter, r *http.Request, u store.User) error {
	q, err := search.Read(r.Context(), s.config.Access, u, r.URL.Query()["keywords"])
	if err != nil {
		return err
	}
	found, err := s.config.Store.SearchWorksheets(r.Context(), u, q)
	if err == nil {
		err = search.CheckFound(len(found))
	}
	if err != nil {
		return search.Error(err)
	}
	return s.writeWorksheets(w, r, u, found)
}
