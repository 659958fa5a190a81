package server

import (
	"net/http"

	"github.com/cl-slurm/cl-slurm/internal/clientnet"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// enter serves a route within its user's share of the server. Users who have not signed in share by their networks.
func (s *Server) enter(one rest.Route, w *watched, r *http.Request, u store.User) error {
	owner := rest.Owner{Name: u.ID}
	if owner.Name == "" {
		owner = rest.Owner{Name: "network " + clientnet.Of(rest.ClientAddress(r, s.BehindProxy)), Stranger: true}
	}
	r, leave, err := s.shares.Enter(r, owner)
	if err != nil {
		return err
	}
	defer leave()
	return s.serve(one, w, r, u)
}

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
		record := &store.Record{UserID: u.ID, UserName: u.Name, At: s.Now()}
		if u.ID != "" {
			r = r.WithContext(store.WithRecord(r.Context(), record))
		}
		known := u.ID != ""
		if err == nil && !known {
			err = s.enter(one, seen, r, u)
		} else if err == nil {
			live, served := s.signIns.Begin(r, u)
			defer live.Close() // a handler may panic to break an answer off
			seen.over = live.Err
			err = live.Refusal(s.enter(one, seen, served, u))
			seen.over, known = nil, live.Err() == nil
		}
		if err != nil {
			rest.Drain(w, r, known)
		}
		rest.AnswerError(s.Log, seen, r, err)
		status := rest.CountedStatus(r, seen.status)
		s.metrics.request(one.Pattern, status)
		did, more := record.Events()
		if one.Changes() && status != http.StatusUnauthorized || len(did) > 0 {
			s.audit(r, u, audited{objects, did, more, status})
		}
	}
}
