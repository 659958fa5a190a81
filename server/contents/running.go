package contents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// refuseNow refuses a request that only a run's worker can serve, and may serve later. The status is 404:
// then CodaLab's own cl leaves out the files of the bundle, and for another status it shows nothing of the
// bundle at all (codalab/lib/bundle_cli.py: print_target_info).
func refuseNow(format string, args ...any) error {
	return &rest.RefusalError{Status: http.StatusNotFound, Message: fmt.Sprintf(format, args...), RetryAfter: hub.AwayAfter}
}

// AwayRefusal refuses a request that needs the worker of a run, because the worker is away.
func (s *Running) AwayRefusal(b store.Bundle) error {
	silent := s.hub.Silent(plan.Worker(b.Worker), s.now()).Truncate(time.Second)
	return refuseNow("Worker %s, which has bundle %s, has not been heard of for %s. The run itself may go on. Its files can be read and written when the worker is back.",
		b.Worker.ID, b.UUID, silent)
}

// read sends a read to a running bundle's worker and waits for the reply. The
// caller calls the reply's Done, if it is set. It fails with hub.ErrMoved if the bundle stops
// running.
func (s *Running) read(ctx context.Context, b store.Bundle, path string, args codalab.ReadArgs) (hub.Reply, error) {
	return s.ask(ctx, b, codalab.Message{Type: codalab.MessageRead, UUID: b.UUID, Path: path, ReadArgs: &args})
}

// readData is read for a reply that has data. The caller calls Done.
func (s *Running) readData(ctx context.Context, p location, args codalab.ReadArgs) (hub.Reply, error) {
	reply, err := s.read(ctx, p.Bundle, p.path, args)
	if err == nil && reply.Data == nil {
		err = rest.Refuse(http.StatusBadGateway, "The worker that runs bundle %s sent no data", p.UUID)
	}
	return reply, err
}

// ask is read for any message to which a worker replies.
func (s *Running) ask(ctx context.Context, b store.Bundle, m codalab.Message) (hub.Reply, error) {
	reply, err := s.hub.Ask(ctx, plan.Worker(b.Worker), m, s.now)
	var no *hub.RefusedError
	switch {
	case errors.As(err, &no):
		err = rest.Refuse(no.Code, "%s", no.Message)
	case errors.Is(err, hub.ErrAway):
		err = s.AwayRefusal(b)
	case errors.Is(err, hub.ErrBusy):
		err = refuseNow("The worker that has bundle %s has to reply to %d other requests first. Try again later.", b.UUID, hub.MostRequests)
	case errors.Is(err, hub.ErrSlow):
		err = refuseNow("Worker %s, which has bundle %s, did not reply within %s.", b.Worker.ID, b.UUID, hub.ReplyTimeout)
	}
	return reply, err
}

// requestOf returns the hub's request to which a worker's HTTP request replies.
func (s *Running) requestOf(r *http.Request, u store.User, reply codalab.ReadReply) (*hub.Request, error) {
	if reply.ErrorCode != 0 && (reply.ErrorCode < 400 || reply.ErrorCode > 599) {
		return nil, rest.Refuse(http.StatusBadRequest, "An error_code is between 400 and 599")
	}
	id, err := strconv.ParseInt(r.PathValue("socket"), 10, 64)
	if err != nil {
		return nil, rest.Refuse(http.StatusNotFound, "Not found: '%s'", r.URL.Path)
	}
	found := s.hub.TakeRequest(plan.Worker{User: u.ID, ID: r.PathValue("worker")}, id)
	if found == nil {
		return nil, rest.Refuse(http.StatusForbidden, "Not your socket ID!")
	}
	return found, nil
}

// reply passes on a worker's reply that has no stream (codalab/rest/workers.py: reply).
func (s *Running) reply(w http.ResponseWriter, r *http.Request, u store.User) error {
	var in codalab.ReadReply
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	found, err := s.requestOf(r, u, in)
	if err != nil {
		return err
	}
	if in.TargetInfo == nil && in.ErrorCode == 0 && found.Kind() != codalab.MessageNetcat {
		in = codalab.ReadReply{ErrorCode: http.StatusBadGateway, ErrorMessage: "The worker's reply is empty"}
	}
	found.Reply(hub.Reply{ReadReply: in})
	return nil
}

// replyData passes on a worker's stream, as fast as the caller of the read takes it
// (codalab/rest/workers.py: reply_data).
func (s *Running) replyData(_ http.ResponseWriter, r *http.Request, u store.User) error {
	header := r.URL.Query().Get("header_message")
	if header == "" {
		return rest.Refuse(http.StatusBadRequest, "Missing header message.")
	}
	var in codalab.ReadReply
	if json.Unmarshal([]byte(header), &in) != nil {
		return rest.Refuse(http.StatusBadRequest, "Header message should be in JSON format.")
	}
	found, err := s.requestOf(r, u, in)
	if err != nil {
		return err
	}
	ctx, done := context.WithCancel(r.Context())
	defer done()
	found.Reply(hub.Reply{ReadReply: in, Data: r.Body, Done: done})
	select {
	case <-ctx.Done(): // the caller is done, or the worker has gone
		return nil
	case <-found.Abandoned():
		return rest.Refuse(http.StatusGone, "No client waits for this reply any more")
	}
}

// Write sends a file to the worker of a run, which puts it into the run's directory. The worker
// does not say whether it did.
func (s *Running) Write(ctx context.Context, uuid, subpath, text string) error {
	b, err := s.store.Bundle(ctx, uuid)
	if errors.Is(err, store.ErrNotFound) {
		return rest.Refuse(http.StatusNotFound, "Could not find bundle with uuid %s", uuid)
	}
	if err != nil {
		return err
	}
	if b.State == codalab.StateWorkerOffline {
		return s.AwayRefusal(b)
	}
	if b.State != codalab.StatePreparing && b.State != codalab.StateRunning {
		return rest.Refuse(http.StatusBadRequest, "Cannot write to bundle %s: it is not running.", uuid)
	}
	err = s.hub.Tell(ctx, plan.Worker(b.Worker), codalab.Message{Type: codalab.MessageWrite, UUID: uuid, Subpath: subpath, String: text}, s.now)
	switch {
	case errors.Is(err, hub.ErrMoved):
		return rest.Refuse(http.StatusBadRequest, "Cannot write to bundle %s: it is not running.", uuid)
	case errors.Is(err, hub.ErrAway):
		return s.AwayRefusal(b)
	}
	return err
}
