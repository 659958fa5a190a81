package contents

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// resultUploads has the newest upload of each run whose results come. A worker sends the results of a run once more if it
// has lost the connection or was started again, and the end of the output in their place if a user has given them up. An
// earlier upload ends then: it would go on with what has come, hold its part of the quota and of the disk, and might
// replace the later one.
type resultUploads struct {
	mu     sync.Mutex
	newest map[string]*resultUpload // by bundle
}

type resultUpload struct {
	of     *resultUploads
	uuid   string
	cancel context.CancelFunc
}

// begin begins an upload, and ends an earlier one of the bundle. ctx ends with the context of the request, and when a later upload
// begins. w is the answer of a request for this upload alone, whose client may have gone silent: a later upload ends its
// connection's reads, too. It is nil for a request with the results of other runs, which go on to come. The caller ends the
// upload.
func (s *resultUploads) begin(request context.Context, w http.ResponseWriter, uuid string) (ctx context.Context, u *resultUpload) {
	ctx, cancel := context.WithCancel(request)
	u = &resultUpload{of: s, uuid: uuid, cancel: cancel}
	if w != nil {
		u.cancel = func() {
			cancel()
			_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // else it reads until it notices ctx
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	earlier := s.newest[uuid]
	if s.newest[uuid] = u; earlier != nil {
		earlier.cancel()
	}
	return ctx, u
}

// refusal returns the refusal of an upload that a later one has replaced, and otherwise nil.
func (u *resultUpload) refusal() error {
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	if u.of.newest[u.uuid] == u {
		return nil
	}
	return rest.Refuse(http.StatusConflict, "Contents cannot be stored: a later upload of the results of bundle %s has begun.", u.uuid)
}

// unlessReplaced is finish for an upload that no later one has replaced, and else refuses the contents.
func (u *resultUpload) unlessReplaced(finish func(*store.Bundle) error) func(*store.Bundle) error {
	return func(b *store.Bundle) error {
		if err := u.refusal(); err != nil {
			return err
		}
		return finish(b)
	}
}

// reason returns why an upload has failed with an error: a later one may have ended it.
func (u *resultUpload) reason(err error) error {
	if err != nil {
		if replaced := u.refusal(); replaced != nil {
			return replaced
		}
	}
	return err
}

// end ends the upload.
func (u *resultUpload) end() {
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	if u.of.newest[u.uuid] == u {
		delete(u.of.newest, u.uuid)
	}
}

// receiveResults stores the results of a run from its worker, unless a later upload of them begins.
func (s *Uploads) receiveResults(ctx context.Context, w http.ResponseWriter, r *http.Request, b store.Bundle, up uploadRequest) error {
	ctx, upload := s.results.begin(ctx, w, b.UUID)
	defer upload.end()
	return upload.reason(s.receive(r.WithContext(ctx), b, up, upload.unlessReplaced(up.finish(b))))
}
