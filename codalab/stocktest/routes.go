package stocktest

// routes are those that a worker and the suite call.
func (s *Server) routes() {
	s.mux.HandleFunc("POST /rest/oauth2/token", s.token)
	for pattern, h := range map[string]handler{
		"POST /rest/workers/{worker}/checkin":              s.checkIn,
		"POST /rest/workers/{worker}/start_bundle/{uuid}":  s.startBundle,
		"POST /rest/workers/{worker}/reply/{socket}":       s.reply,
		"POST /rest/workers/{worker}/reply_data/{socket}":  s.replyData,
		"GET /rest/workers/info":                           s.workersInfo,
		"GET /rest/user":                                   s.showUser,
		"POST /rest/groups":                                objects(s.makeGroup),
		"GET /rest/groups/{group}":                         s.showGroup,
		"POST /rest/groups/{group}/relationships/members":  objects(s.addMembers),
		"POST /rest/bundle-permissions":                    objects(s.setPermissions),
		"POST /rest/bundle-actions":                        objects(s.act),
		"POST /rest/bundles":                               objects(s.makeBundles),
		"PATCH /rest/bundles":                              objects(s.changeBundles),
		"DELETE /rest/bundles":                             objects(s.removeBundles),
		"GET /rest/bundles/{uuid}":                         s.showBundle,
		"GET /rest/bundles/{uuid}/contents/info/{path...}": s.info,
		"GET /rest/bundles/{uuid}/contents/blob/{path...}": s.blob,
		"PUT /rest/bundles/{uuid}/contents/blob/{$}":       s.put,
		"PUT /rest/bundles/{uuid}/netcat/{port}/{$}":       s.netcat,
	} {
		s.route(pattern, h)
	}
}
