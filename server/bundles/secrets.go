package bundles

import (
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// keepsSecrets reports whether a run names secrets of its owner that a worker has, or may still get.
func keepsSecrets(b store.Bundle) bool {
	return !b.State.Final() && len(b.Metadata.Strings(codalab.SecretsKey)) > 0
}

// checkSecrets refuses changes that would give the secrets of a run's owner to somebody else. A worker gets the secrets of
// the present owner, and the command runs in the image that the requests name.
func (e *edit) checkSecrets(b store.Bundle) error {
	if e.Metadata.Has(codalab.SecretsKey) && !slices.Equal(e.Metadata.Strings(codalab.SecretsKey), b.Metadata.Strings(codalab.SecretsKey)) {
		return rest.Refuse(http.StatusForbidden, "The secrets of a run cannot be changed: cl mimic --secret makes it again with others.")
	}
	if !keepsSecrets(b) {
		return nil
	}
	if e.giving.To != "" && e.giving.To != b.OwnerID {
		return rest.Refuse(http.StatusForbidden, "Run %s has not ended and names secrets of its owner: nobody can change its owner now.", b.UUID)
	}
	if e.giving.By.Root() || e.giving.By.ID == b.OwnerID {
		return nil
	}
	for key := range e.Metadata {
		if strings.HasPrefix(key, "request_") {
			return rest.Refuse(http.StatusForbidden, "Run %s names secrets of its owner: only the owner can change its requests.", b.UUID)
		}
	}
	return nil
}

// checkWrite refuses a user's write into a run with secrets of somebody else: the text may become a part of the program
// that has them.
func checkWrite(a codalab.BundleAction, u store.User, b store.Bundle) error {
	if a.Type != codalab.MessageWrite || !keepsSecrets(b) || u.Root() || u.ID == b.OwnerID {
		return nil
	}
	return rest.Refuse(http.StatusForbidden, "Run %s names secrets of its owner: only the owner can write into it.", b.UUID)
}
