package checkin

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/coder/websocket"

	"github.com/cl-slurm/cl-slurm/internal/connections"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

// Doorbell serves a worker's websocket (codalab/bin/ws_server.py: worker_handler). Like CodaLab's own
// server, it takes the worker's id from the end of the path.
func (s *CheckIns) Doorbell(w http.ResponseWriter, r *http.Request) {
	const before = "/worker/"
	at := strings.LastIndex(r.URL.Path, before)
	if at < 0 || at+len(before) == len(r.URL.Path) {
		rest.AnswerError(s.config.Log, w, r, rest.Refuse(http.StatusNotFound, "Not found: '%s'", r.URL.Path))
		return
	}
	bell, err := s.config.Hub.Bells.Add(r.URL.Path[at+len(before):], s.config.Address(r))
	switch {
	case errors.Is(err, hub.ErrStopped):
		err = rest.Refuse(http.StatusServiceUnavailable, "The server stops.")
	case errors.Is(err, hub.ErrTooMany):
		err = rest.Refuse(http.StatusServiceUnavailable, "Too many websockets are open. Workers need none.")
	}
	if err != nil {
		rest.AnswerError(s.config.Log, w, r, err)
		return
	}
	defer bell.Close()
	connections.Release(r.Context()) // a worker without a doorbell checks in every few seconds
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	bell.Serve(context.WithoutCancel(r.Context()), c) // the request's context does not end with a websocket
}
