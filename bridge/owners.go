package bridge

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// ownerNames knows the names of bundles' owners. It is safe for concurrent use.
type ownerNames struct {
	service OwnerService // nil if names do not matter
	now     func() time.Time

	mu    sync.Mutex
	known map[string]knownOwner // by id
}

type knownOwner struct {
	name  string
	asked time.Time
}

// ownerGood is the time for which the name of an owner is used without another question. CodaLab's own server lets
// users change their names.
const ownerGood = 5 * time.Minute

// nameFor returns the name of a bundle's owner, as the server tells it. It is empty if the offer already has it, and if
// the server does not have the user any more or does not show the user.
func (o *ownerNames) nameFor(ctx context.Context, run *codalab.RunBundle) (string, error) {
	if o.service == nil || run.OwnerName != "" || run.OwnerID == "" {
		return "", nil
	}
	o.mu.Lock()
	known, ok := o.known[run.OwnerID]
	o.mu.Unlock()
	if ok && o.now().Sub(known.asked) < ownerGood {
		return known.name, nil
	}
	u, err := o.service.UserByID(ctx, run.OwnerID)
	if err != nil && !codalab.IsStatus(err, http.StatusNotFound) && !codalab.IsStatus(err, http.StatusForbidden) {
		return "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil || len(o.known) >= mostOwners {
		o.known = map[string]knownOwner{}
	}
	o.known[run.OwnerID] = knownOwner{u.UserName, o.now()}
	return u.UserName, nil
}

// mostOwners bounds the names that a bridge keeps.
const mostOwners = 10_000
