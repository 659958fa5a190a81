package pages

import (
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
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

// isAway reports whether the worker that has the files of a run does not answer now. The API has the same status for files that
// do not exist, which CodaLab's own cl needs.
func isAway(err error) bool {
	no, ok := errors.AsType[*codalab.Error](err)
	return ok && no.Status == http.StatusNotFound && no.Later
}

// isMissing reports whether there is nothing to read.
func isMissing(err error) bool { return isStatus(err, http.StatusNotFound) && !isAway(err) }

// sentence returns the sentence of a refusal about what the user has typed; false for other errors.
func sentence(err error) (string, bool) {
	if no, ok := errors.AsType[*rest.RefusalError](err); ok {
		return no.Message, true
	}
	no, ok := errors.AsType[*codalab.Error](err)
	if !ok || no.Status < http.StatusBadRequest || no.Status >= http.StatusInternalServerError || no.Status == http.StatusUnauthorized {
		return "", false
	}
	return no.Message, true
}
