package batchtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// refuse answers with an error. values has pairs of a key and a value.
func refuse(w http.ResponseWriter, status int, code, message string, values ...string) {
	body := object{
		"odata.metadata": "https://account.region.batch.azure.com/$metadata#Microsoft.Azure.Batch.Protocol.Entities.Container.errors/@Element",
		"code":           code,
		"message":        object{"lang": "en-US", "value": message + "\nRequestId:4a9bd2a7-0a0e-4a5b-9d7b-000000000000\nTime:2026-11-27T00:00:00.0000000Z"},
	}
	var list []object
	for pair := range slices.Chunk(values, 2) {
		list = append(list, object{"key": pair[0], "value": pair[1]})
	}
	if list != nil {
		body["values"] = list
	}
	answer(w, status, body)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json;odata=minimalmetadata")
	w.Header().Set("Request-Id", "4a9bd2a7-0a0e-4a5b-9d7b-000000000000")
	w.Header().Set("DataServiceVersion", "3.0")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// thisJob reports whether a request names the job, and refuses it otherwise.
func (s *Service) thisJob(w http.ResponseWriter, r *http.Request) bool {
	if !strings.EqualFold(r.PathValue("job"), s.Job) {
		refuse(w, http.StatusNotFound, "JobNotFound", "The specified job does not exist.")
		return false
	}
	return true
}

// thisTask returns the task that a request names, or refuses the request. The caller holds mu.
func (s *Service) thisTask(w http.ResponseWriter, r *http.Request) *task {
	if !s.thisJob(w, r) {
		return nil
	}
	for _, t := range s.all {
		if strings.EqualFold(t.id, r.PathValue("task")) {
			return t
		}
	}
	refuse(w, http.StatusNotFound, "TaskNotFound", "The specified task does not exist.")
	return nil
}

func (s *Service) getJob(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.thisJob(w, r) {
		answer(w, http.StatusOK, selected(r, object{
			"id": s.Job, "url": s.URL + "/jobs/" + s.Job, "eTag": "0x8D4EDFEBFADF4AB", "state": s.jobState, "priority": 0, "usesTaskDependencies": false,
			"poolInfo": object{"poolId": s.Pool}, "onAllTasksComplete": "noaction", "onTaskFailure": "noaction", "executionInfo": object{"poolId": s.Pool},
		}))
	}
}

func (s *Service) countTasks(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.thisJob(w, r) {
		return
	}
	n := map[string]int{}
	for _, t := range s.all {
		n[t.state]++
		if t.state == "completed" {
			n[map[bool]string{true: "succeeded", false: "failed"}[t.failure == nil]]++
		}
	}
	counts := object{"active": n["active"], "running": n["running"], "completed": n["completed"], "succeeded": n["succeeded"], "failed": n["failed"]}
	answer(w, http.StatusOK, object{"taskCounts": counts, "taskSlotCounts": counts})
}

var idForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// jobRefusals are the codes with which a job that is not active refuses a new task.
var jobRefusals = map[string]string{ //nolint:gochecknoglobals // a constant
	"disabled": "JobDisabled", "completed": "JobCompleted", "terminating": "JobBeingTerminated", "deleting": "JobBeingDeleted", "disabling": "JobNotActive",
}

func (s *Service) addTask(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body object
	if !s.thisJob(w, r) {
		return
	}
	if r.Header.Get("Content-Type") != "application/json; odata=minimalmetadata" && !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json; odata=minimalmetadata;") {
		refuse(w, http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.", "HeaderName", "Content-Type")
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "InvalidRequestBody", "The specified Request Body is not syntactically valid.", "Reason", err.Error())
		return
	}
	if code, reason := checkTask(body); code != "" {
		refuse(w, http.StatusBadRequest, code, "The value provided for one of the properties in the request body is invalid.", "Reason", reason)
		return
	}
	id, _ := body["id"].(string)
	if code := jobRefusals[s.jobState]; code != "" && code != "JobDisabled" {
		refuse(w, http.StatusConflict, code, "The specified job is in the state "+s.jobState+".")
		return
	}
	if slices.ContainsFunc(s.all, func(t *task) bool { return strings.EqualFold(t.id, id) }) {
		refuse(w, http.StatusConflict, "TaskExists", "The specified task already exists.")
		return
	}
	s.all = append(s.all, &task{id: id, body: body, state: "active", created: s.Now(), changed: s.Now()})
	s.schedule()
	if s.lost > 0 {
		s.lost--
		panic(http.ErrAbortHandler) // the connection ends here
	}
	w.Header().Set("ETag", "0x8D3D62350711C55")
	w.Header().Set("Location", s.URL+"/jobs/"+s.Job+"/tasks/"+id)
	w.Header().Set("DataServiceId", s.URL+"/jobs/"+s.Job+"/tasks/"+id)
	w.WriteHeader(http.StatusCreated)
}

// shown returns a task as the service shows it.
func (s *Service) show(t *task) object {
	o := object{
		"id": t.id, "url": s.URL + "/jobs/" + s.Job + "/tasks/" + t.id, "eTag": "0x8D3D62350711C55", "creationTime": stamp(t.created),
		"lastModified": stamp(t.created), "state": t.state, "stateTransitionTime": stamp(t.changed),
	}
	for name, value := range t.body {
		o[name] = value
	}
	e := object{"retryCount": 0, "requeueCount": t.requeues}
	if t.requeues > 0 {
		e["lastRequeueTime"] = stamp(t.changed)
	}
	if !t.began.IsZero() {
		e["startTime"] = stamp(t.began)
	}
	if t.state == "completed" {
		e["endTime"], e["result"] = stamp(t.ended), "success"
	}
	if t.exit != nil {
		e["exitCode"] = *t.exit
	}
	if t.failure != nil {
		e["failureInfo"], e["result"] = t.failure, "failure"
	}
	o["executionInfo"] = e
	if t.node != nil {
		o["nodeInfo"] = object{
			"affinityId": "TVM:" + t.node.id, "nodeUrl": s.URL + "/pools/" + s.Pool + "/nodes/" + t.node.id, "poolId": s.Pool, "nodeId": t.node.id,
			"taskRootDirectory": "workitems/" + s.Job + "/job-1/" + t.id,
		}
	}
	return o
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.0000000Z") }

// selected returns the properties of an object that $select names.
func selected(r *http.Request, o object) object {
	names := r.URL.Query().Get("$select")
	if names == "" {
		return o
	}
	some := object{}
	for name := range strings.SplitSeq(names, ",") {
		if value, ok := o[strings.TrimSpace(name)]; ok {
			some[strings.TrimSpace(name)] = value
		}
	}
	return some
}

func (s *Service) getTask(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.thisTask(w, r); t != nil {
		answer(w, http.StatusOK, selected(r, s.show(t)))
	}
}

func (s *Service) listTasks(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.thisJob(w, r) {
		return
	}
	query := r.URL.Query()
	keep, err := parseFilter(query.Get("$filter"), "id", "state", "previousState")
	size := s.PageSize
	if n := query.Get("maxresults"); n != "" && err == nil {
		var most int
		if most, err = strconv.Atoi(n); err == nil && (most < 1 || most > 1000) {
			err = errors.New("maxresults is 1 to 1000")
		}
		size = min(size, most)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "InvalidQueryParameterValue", "Value for one of the query parameters specified in the request URI is invalid.", "Reason", err.Error())
		return
	}
	list := []object{}
	last := query.Get("$skiptoken")
	byID := slices.SortedFunc(slices.Values(s.all), func(a, b *task) int { return strings.Compare(a.id, b.id) })
	body := object{"odata.metadata": s.URL + "/$metadata#tasks"}
	for _, t := range byID {
		o := s.show(t)
		if t.id <= last || !keep(o) {
			continue
		}
		if len(list) == size {
			query.Set("$skiptoken", fmt.Sprint(list[size-1]["id"]))
			body["odata.nextLink"] = s.URL + r.URL.Path + "?" + query.Encode()
			break
		}
		some := selected(r, o)
		some["id"] = t.id
		list = append(list, some)
	}
	body["value"] = list
	answer(w, http.StatusOK, body)
}

func (s *Service) deleteTask(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.thisTask(w, r); t != nil {
		if t.stop != nil {
			t.stop(errNodeLost)
		}
		s.all = slices.DeleteFunc(s.all, func(other *task) bool { return other == t })
		w.WriteHeader(http.StatusOK)
	}
}

func (s *Service) terminateTask(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.thisTask(w, r)
	switch {
	case t == nil:
		return
	case t.state == "completed":
		refuse(w, http.StatusConflict, "TaskCompleted", "The specified task is already in a completed state.")
		return
	}
	t.byUser = true
	if t.state == "running" && t.stop != nil {
		t.stop(nil) // its end completes it
	} else {
		s.complete(t, 0)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Service) getFile(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.thisTask(w, r)
	if t == nil {
		return
	}
	var content []byte
	file, ok := t.files[r.PathValue("file")]
	switch {
	case t.files == nil && t.state == "completed":
		refuse(w, http.StatusConflict, "TaskFilesUnavailable", "The files of the specified task are unavailable.")
		return
	case !ok:
		refuse(w, http.StatusNotFound, "FileNotFound", "The specified file does not exist.")
		return
	}
	content = bytes.Clone(file.Bytes())
	w.Header().Set("Ocp-Creation-Time", t.began.UTC().Format(http.TimeFormat))
	w.Header().Set("Ocp-Batch-File-Isdirectory", "false")
	w.Header().Set("Ocp-Batch-File-Url", url.PathEscape(s.URL+r.URL.Path))
	w.Header().Set("Ocp-Batch-File-Mode", "0o100644")
	w.Header().Set("Content-Type", "application/octet-stream")
	from, ok := strings.CutPrefix(r.Header.Get("Ocp-Range"), "bytes=")
	if !ok {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content)
		return
	}
	first, _, _ := strings.Cut(from, "-")
	n, err := strconv.Atoi(first)
	if err != nil || n >= len(content) {
		refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The range specified is invalid for the current size of the resource.")
		return
	}
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", n, len(content)-1, len(content)))
	_, _ = w.Write(content[n:]) // with 200: the OpenAPI names no 206, and Microsoft's client takes that for an error
}
