package access

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// LinkedID returns the id of the object to which a request's relationship leads.
func LinkedID(o codalab.Object, name string) (string, error) {
	var link codalab.Link
	rel, ok := o.Relationships[name]
	if !ok || json.Unmarshal(rel.Data, &link) != nil || link.ID == "" {
		return "", rest.Refuse(http.StatusBadRequest, "The relationship '%s' must name an object", name)
	}
	return link.ID, nil
}

// NewOwner returns the id of the owner that a client gives an object; empty if the request names
// none.
func (a Access) NewOwner(ctx context.Context, o codalab.Object) (string, error) {
	if rel, ok := o.Relationships["owner"]; !ok || string(rel.Data) == "null" {
		return "", nil
	}
	id, err := LinkedID(o, "owner")
	if err != nil {
		return "", err
	}
	u, err := a.Store.User(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return "", rest.Refuse(http.StatusNotFound, "User %s not found", id)
	}
	return u.ID, err
}
