package worksheets

import (
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// What one request may ask for, and the number of paths that an answer names.
const (
	mostValued     = 5000
	mostValuePaths = 50
	mostNamedPaths = 500
)

// interpretValues tells the values that bundles have in their small result files, by which searches sort (package values),
// and the paths at which any of these has one. It leaves out bundles that the user may not read.
func (s *Worksheets) interpretValues(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	var in codalab.ValueQuery
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	if len(in.Bundles) > mostValued || len(in.Paths) > mostValuePaths {
		return rest.Refuse(http.StatusBadRequest, "At most %d bundles and %d paths can be asked for at once.", mostValued, mostValuePaths)
	}
	if settle := s.config.Access.SettleValues; settle != nil {
		settle(ctx)
	}
	_, have, err := s.config.Access.BundlesFor(ctx, u, in.Bundles, "name")
	if err != nil {
		return err
	}
	var readable []string
	for _, uuid := range in.Bundles {
		if have[uuid] >= store.PermissionRead {
			readable = append(readable, uuid)
		}
	}
	out := codalab.Values{Paths: []codalab.ValuePath{}}
	paths, err := s.config.Store.ValuePaths(ctx, readable)
	if err != nil {
		return err
	}
	for _, p := range paths[:min(len(paths), mostNamedPaths)] {
		out.Paths = append(out.Paths, codalab.ValuePath(p))
	}
	if out.Values, err = s.config.Store.Values(ctx, readable, in.Paths); err != nil {
		return err
	}
	return rest.WriteDocument(w, out, nil)
}
