package batchtest

import (
	"maps"
	"net/http"
	"time"
)

// thisPool reports whether a request names the pool, and refuses it otherwise.
func (s *Service) thisPool(w http.ResponseWriter, r *http.Request) bool {
	if r.PathValue("pool") != s.Pool || s.pool["missing"] == true {
		refuse(w, http.StatusNotFound, "PoolNotFound", "The specified pool does not exist.")
		return false
	}
	return true
}

func (s *Service) getPool(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.thisPool(w, r) {
		o := object{
			"id": s.Pool, "url": s.URL + "/pools/" + s.Pool, "eTag": "0x8D413091E739A56", "currentDedicatedNodes": len(s.nodes), "targetDedicatedNodes": len(s.nodes),
			"creationTime": stamp(time.Unix(0, 0)), "lastModified": stamp(time.Unix(0, 0)), "stateTransitionTime": stamp(time.Unix(0, 0)),
		}
		maps.Copy(o, s.pool)
		answer(w, http.StatusOK, selected(r, o))
	}
}

func (s *Service) listNodes(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.thisPool(w, r) {
		return
	}
	keep, err := parseFilter(r.URL.Query().Get("$filter"), "state")
	if err != nil {
		refuse(w, http.StatusBadRequest, "InvalidQueryParameterValue", "Value for one of the query parameters specified in the request URI is invalid.", "Reason", err.Error())
		return
	}
	list := []object{}
	for _, n := range s.nodes {
		o := object{"id": n.id, "url": s.URL + "/pools/" + s.Pool + "/nodes/" + n.id, "state": n.state, "vmSize": s.pool["vmSize"], "isDedicated": true}
		if n.failure != nil {
			o["errors"] = []object{n.failure}
		}
		if n.state == "starttaskfailed" {
			o["startTaskInfo"] = object{
				"state": "completed", "retryCount": 0, "exitCode": 1, "result": "failure",
				"failureInfo": object{"category": "usererror", "code": "FailureExitCode", "message": "The task exited with an exit code representing a failure"},
			}
		}
		if keep(o) {
			list = append(list, selected(r, o))
		}
	}
	answer(w, http.StatusOK, object{"odata.metadata": s.URL + "/$metadata#nodes", "value": list})
}

// countNames are the names of the numbers of nodes, by their states.
var countNames = map[string]string{ //nolint:gochecknoglobals // a constant
	"creating": "creating", "idle": "idle", "offline": "offline", "preempted": "preempted", "rebooting": "rebooting", "reimaging": "reimaging", "running": "running",
	"starting": "starting", "deallocated": "deallocated", "deallocating": "deallocating", "starttaskfailed": "startTaskFailed", "leavingpool": "leavingPool", "unknown": "unknown", "unusable": "unusable",
	"waitingforstarttask": "waitingForStartTask", "upgradingos": "upgradingOS",
}

func (s *Service) countNodes(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep, err := parseFilter(r.URL.Query().Get("$filter"), "poolId")
	if err != nil {
		refuse(w, http.StatusBadRequest, "InvalidQueryParameterValue", "Value for one of the query parameters specified in the request URI is invalid.", "Reason", err.Error())
		return
	}
	none, all := object{"total": 0}, object{"total": len(s.nodes)}
	for _, name := range countNames {
		none[name], all[name] = 0, 0
	}
	if r.URL.Query().Get("api-version") == oldVersion { // these states are newer
		for _, name := range []string{"deallocated", "deallocating", "upgradingOS"} {
			delete(none, name)
			delete(all, name)
		}
	}
	for _, n := range s.nodes {
		count, _ := all[countNames[n.state]].(int)
		all[countNames[n.state]] = count + 1
	}
	list := []object{}
	if o := (object{"poolId": s.Pool, "dedicated": all, "lowPriority": none}); keep(o) {
		list = append(list, o)
	}
	answer(w, http.StatusOK, object{"odata.metadata": s.URL + "/$metadata#poolnodecounts", "value": list})
}
