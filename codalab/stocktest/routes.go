package stocktest

// routes are those that a worker and the suite call.
func (s *Server) routes() {
	s.mux.HandleFunc("POST /rest/oauth2/token", s.token)
	for pattern, h := range map[string]handler{
		"POST /rest/workers/{worker}/checkin":             s.checkIn,
		"POST /rest/workers/{worker}/start_bundle/{uuid}": s.startBundle,
		"POST /rest/workers/{worker}/reply/{socket}":      s.reply,
		"POST /rest/workers/{worker}/reply_data/{socket}": s.replyData,
		"GET /rest/user":                                   s.showUser,
		"POST /rest/bundle-actions":                        objects(s.actions),
		"POST /rest/bundles":                               objects(s.makeBundles),
		"PATCH /rest/bundles":                              objects(s.changeBundles),
		"GET /rest/bundles/{uuid}":                         s.showBundle,
		"GET /rest/bundles/{uuid}/contents/info/{path...}": s.info,
		"GET /rest/bundles/{uuid}/contents/blob/{path...}": s.blob,
		"PUT /rest/bundles/{uuid}/contents/blob/{$}":       s.put,
	} {
		s.route(pattern, h)
	}
}
