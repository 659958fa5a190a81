package server

import (
	"net/http"

	"github.com/cl-slurm/cl-slurm/server/rest"
)

// authenticated serves a route for the user whose access token the request has.
func (s *Server) authenticated(one rest.Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		u, err := s.signIns.Authenticate(r, one.Public && !s.RequireSignIn)
		if err == nil {
			err = one.Admit(r, u)
		}
		if err == nil {
			err = rest.CheckTexts(one.Pattern, r)
		}
		seen, objects := &watched{ResponseWriter: w, status: http.StatusOK}, []string{}
		if one.Changes() {
			r = rest.WithObjects(r, &objects)
		}
		known := u.ID != ""
		if err == nil && !known {
			err = s.serve(one, seen, r, u)
		} else if err == nil {
			live, served := s.signIns.Begin(r, u)
			defer live.Close() // a handler may panic to break an answer off
			seen.over = live.Err
			err = live.Refusal(s.serve(one, seen, served, u))
			seen.over, known = nil, live.Err() == nil
		}
		if err != nil {
			rest.Drain(w, r, known)
		}
		rest.AnswerError(s.Log, seen, r, err)
		s.metrics.request(one.Pattern, seen.status)
		if one.Changes() && seen.status != http.StatusUnauthorized {
			s.audit(r, u, objects, seen.status)
		}
	}
}
