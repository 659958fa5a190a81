package stocktest

// routes are those that a worker, this suite and the commands' main job call.
func (s *Server) routes() {
	s.mux.HandleFunc("POST /rest/oauth2/token", s.token)
	for pattern, h := range map[string]handler{
		"POST /rest/workers/{worker}/checkin":              s.checkIn,
		"POST /rest/workers/{worker}/start_bundle/{uuid}":  s.startBundle,
		"POST /rest/workers/{worker}/reply/{socket}":       s.reply,
		"POST /rest/workers/{worker}/reply_data/{socket}":  s.replyData,
		"GET /rest/workers/info":                           s.workersInfo,
		"GET /rest/user":                                   s.showUser,
		"GET /rest/groups":                                 s.listGroups,
		"POST /rest/groups":                                s.makeGroup,
		"GET /rest/groups/{group}":                         s.showGroup,
		"POST /rest/groups/{group}/relationships/members":  s.addMembers,
		"POST /rest/bundle-permissions":                    s.setPermissions,
		"POST /rest/bundle-actions":                        s.act,
		"GET /rest/worksheets":                             s.findWorksheet,
		"GET /rest/bundles":                                s.findBundles,
		"POST /rest/bundles":                               s.makeBundles,
		"DELETE /rest/bundles":                             s.removeBundles,
		"GET /rest/bundles/{uuid}":                         s.showBundle,
		"GET /rest/bundles/{uuid}/contents/info/{path...}": s.info,
		"GET /rest/bundles/{uuid}/contents/blob/{path...}": s.blob,
		"PUT /rest/bundles/{uuid}/contents/blob/{$}":       s.put,
		"PUT /rest/bundles/{uuid}/netcat/{port}/{$}":       s.netcat,
	} {
		s.route(pattern, h)
	}
}
