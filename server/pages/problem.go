package pages

import (
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// refusedKeywords returns the server's sentence about keywords that it does not understand.
func refusedKeywords(err error) (string, bool) {
	no, ok := errors.AsType[*codalab.Error](err)
	if !ok || no.Status != http.StatusBadRequest {
		return "", false
	}
	return no.Message, true
}

// isStatus reports whether the server has refused with a status.
func isStatus(err error, status int) bool {
	no, ok := errors.AsType[*codalab.Error](err)
	return ok && no.Status == status
}
