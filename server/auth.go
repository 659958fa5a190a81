package server

import (
	"context"
	"net/http"

	"github.com/cl-slurm/cl-slurm/internal/clientnet"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/signin"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// enter serves a route under ctx, within its user's share of the server. Users who have not signed in share by their networks.
func (s *Server) enter(ctx context.Context, one rest.Route, w *watched, r *http.Request, u store.User) error {
	owner := rest.Owner{Name: u.ID}
	if owner.Name == "" {
		owner = rest.Owner{Name: "network " + clientnet.Of(rest.ClientAddress(r, s.BehindProxy)), Stranger: true}
	}
	ctx, leave, err := s.shares.Enter(ctx, owner)
	if err != nil {
		return err
	}
	defer leave()
	served := r.WithContext(ctx)
	served.Body = signin.Body(ctx, r.Body)
	return s.serve(one, w, served, u)
}

// authenticated serves a route for the user whose access token the request has.
func (s *Server) authenticated(one rest.Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if rest.HasCookie(r) {
			w.Header().Set("Cache-Control", "private, no-store") // what a browser has got is not there for the next person
			w.Header().Add("Vary", "Cookie")
		}
		u, err := s.signIns.Authenticate(w, r, one.Public && !s.RequireSignIn)
		if err == nil {
			err = one.Admit(r, u)
		}
		if err == nil {
			err = rest.CheckTexts(one.Pattern, r)
		}
		seen, objects := &watched{ResponseWriter: w, status: http.StatusOK}, []string{}
		record := &store.Record{UserID: u.ID, UserName: u.Name, At: s.Now()}
		known, ctx := u.ID != "", r.Context()
		if one.Changes() {
			ctx = rest.WithObjects(ctx, &objects)
		}
		if err == nil && !known {
			err = s.enter(ctx, one, seen, r, u)
		} else if err == nil {
			live, within := s.signIns.Begin(store.WithRecord(ctx, record), u)
			defer live.Close() // a handler may panic to break an answer off
			seen.over = live.Err
			err = live.Refusal(s.enter(within, one, seen, r, u))
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
