package awstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// request is the union of the requests' fields.
type request struct {
	JobName, JobQueue, JobDefinition, JobDefinitionName string
	JobID                                               string `json:"jobId"`
	JobStatus, Status, Reason, NextToken                string
	LogGroupName, LogStreamName                         string
	MaxResults                                          int
	Jobs, JobQueues, ComputeEnvironments                []string
	Filters                                             []struct {
		Name   string
		Values []string
	}
	ContainerOverrides struct {
		Command     []string
		Environment []struct{ Name, Value string }
	}
}

func (c *Cloud) answer(w http.ResponseWriter, r *http.Request) {
	var body json.RawMessage
	var q request
	err := json.NewDecoder(r.Body).Decode(&body)
	if err == nil {
		err = json.Unmarshal(body, &q)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "SerializationException", err.Error())
		return
	}
	name := operation(r)
	w.Header().Set("Date", c.now().UTC().Format(http.TimeFormat))
	if text := c.expired(r); text != "" {
		refuse(w, http.StatusForbidden, "InvalidSignatureException", text)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Denied[name] {
		refuse(w, http.StatusForbidden, "AccessDeniedException", "User: arn:aws:iam::"+account+":user/lab is not authorized to perform: batch:"+name)
		return
	}
	answers := map[string]func(http.ResponseWriter, request, json.RawMessage){
		"submitjob": c.submit, "listjobs": c.list, "describejobs": c.describe, "terminatejob": c.terminate,
		"registerjobdefinition": c.register, "describejobdefinitions": c.describeDefinitions,
		"describejobqueues": c.describeQueues, "describecomputeenvironments": c.describeEnvironments, "getlogevents": c.logEvents,
	}
	do := answers[name]
	if do == nil {
		refuse(w, http.StatusNotFound, "UnknownOperationException", name)
		return
	}
	do(w, q, body)
}

func clientError(w http.ResponseWriter, text string) {
	refuse(w, http.StatusBadRequest, "ClientException", text)
}

// jobName is the form of the name of a job and of a definition (API_SubmitJob: jobName, API_RegisterJobDefinition:
// jobDefinitionName).
var jobName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// expired returns the reason for which a signature is too old or too new; empty if it is not (IAM user guide, Signature
// Version 4: within five minutes).
func (c *Cloud) expired(r *http.Request) string {
	const layout, most = "20060102T150405Z", 5 * time.Minute
	stamp := r.Header.Get("X-Amz-Date")
	signed, err := time.Parse(layout, stamp)
	now := c.now().UTC()
	switch {
	case err != nil:
		return "Missing X-Amz-Date"
	case now.Sub(signed) > most:
		return fmt.Sprintf("Signature expired: %s is now earlier than %s", stamp, now.Add(-most).Format(layout))
	case signed.Sub(now) > most:
		return fmt.Sprintf("Signature not yet current: %s is still later than %s", stamp, now.Add(most).Format(layout))
	}
	return ""
}

// badRequirement returns the reason for which AWS refuses what a container of a definition asks for; empty if it does not
// (API_ResourceRequirement).
func badRequirement(body json.RawMessage) string {
	var d struct {
		ContainerProperties struct {
			ResourceRequirements []struct{ Type, Value string }
		}
	}
	if err := json.Unmarshal(body, &d); err != nil {
		return err.Error()
	}
	seen := map[string]bool{}
	least := map[string]int{"VCPU": 1, "MEMORY": 4, "GPU": 1}
	for _, r := range d.ContainerProperties.ResourceRequirements {
		n, err := strconv.Atoi(r.Value)
		if at, known := least[r.Type]; !known || err != nil || n < at || seen[r.Type] {
			return fmt.Sprintf("Error executing request, Exception : Invalid resource requirement %s %s", r.Type, r.Value)
		}
		seen[r.Type] = true
	}
	if !seen["VCPU"] || !seen["MEMORY"] {
		return "Container properties must have VCPU and MEMORY"
	}
	return ""
}

func (c *Cloud) queue(name string) map[string]any {
	for key, q := range c.Queues {
		if name == key || name == q["jobQueueArn"] {
			return q
		}
	}
	return nil
}

func (c *Cloud) submit(w http.ResponseWriter, q request, _ json.RawMessage) {
	queue := c.queue(q.JobQueue)
	active := slices.ContainsFunc(c.definitions, func(d map[string]any) bool {
		return d["jobDefinitionArn"] == q.JobDefinition && d["status"] == "ACTIVE"
	})
	switch {
	case !jobName.MatchString(q.JobName):
		clientError(w, "Job name should match valid pattern")
		return
	case queue == nil:
		clientError(w, "JobQueue "+q.JobQueue+" not found.")
		return
	case queue["state"] == "DISABLED":
		clientError(w, "JobQueue "+q.JobQueue+" is disabled")
		return
	case !active:
		clientError(w, "JobDefinition "+q.JobDefinition+" is not found or not active")
		return
	}
	j := &Job{
		ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", len(c.jobs)+1), Name: q.JobName, Queue: q.JobQueue, Definition: q.JobDefinition,
		Status: "SUBMITTED", Created: c.now().UnixMilli(), Command: q.ContainerOverrides.Command, Environment: map[string]string{},
	}
	for _, e := range q.ContainerOverrides.Environment {
		j.Environment[e.Name] = e.Value
	}
	c.jobs = append(c.jobs, j)
	reply(w, map[string]string{"jobId": j.ID, "jobName": j.Name, "jobArn": arn("job", j.ID)})
}

// page returns the part of a list that an answer has, and the token of the next one. most is AWS's number.
func page[T any](c *Cloud, all []T, q request, most int) ([]T, string) {
	if c.Page > 0 {
		most = c.Page
	}
	if q.MaxResults > 0 {
		most = min(most, q.MaxResults)
	}
	from, _ := strconv.Atoi(q.NextToken) // none is 0
	from = min(from, len(all))
	to := min(from+most, len(all))
	if to < len(all) {
		return all[from:to], strconv.Itoa(to)
	}
	return all[from:to], ""
}

func (c *Cloud) list(w http.ResponseWriter, q request, _ json.RawMessage) {
	if c.queue(q.JobQueue) == nil {
		clientError(w, "JobQueue "+q.JobQueue+" not found.")
		return
	}
	c.advance()
	status, most := q.JobStatus, 1000
	if status == "" {
		status = "RUNNING"
	}
	found := []map[string]any{}
	for _, j := range c.jobs {
		matches := j.Status == status
		if len(q.Filters) > 0 {
			most = 100
			matches = q.Filters[0].Name == "JOB_NAME" && matchesName(j.Name, q.Filters[0].Values[0])
		}
		if j.Queue == q.JobQueue && matches && !c.Hidden[j.Name] {
			found = append(found, j.summary())
		}
	}
	jobs, next := page(c, found, q, most)
	answer := map[string]any{"jobSummaryList": jobs}
	if next != "" {
		answer["nextToken"] = next
	}
	reply(w, answer)
}

// matchesName is the filter JOB_NAME (API_ListJobs: filters).
func matchesName(name, value string) bool {
	name, value = strings.ToLower(name), strings.ToLower(value)
	if beginning, ok := strings.CutSuffix(value, "*"); ok {
		return strings.HasPrefix(name, beginning)
	}
	return name == value
}

func (j *Job) summary() map[string]any {
	s := map[string]any{
		"jobId": j.ID, "jobName": j.Name, "jobArn": arn("job", j.ID), "jobDefinition": j.Definition, "status": j.Status, "createdAt": j.Created,
	}
	set := func(key string, n int64) {
		if n > 0 {
			s[key] = n
		}
	}
	set("startedAt", j.Started)
	set("stoppedAt", j.Stopped)
	if j.StatusReason != "" {
		s["statusReason"] = j.StatusReason
	}
	if j.ExitCode != nil {
		s["container"] = map[string]any{"exitCode": *j.ExitCode, "reason": j.ContainerReason}
	}
	return s
}

// mostDescribed is the most jobs of one DescribeJobs.
const mostDescribed = 100

func (c *Cloud) describe(w http.ResponseWriter, q request, _ json.RawMessage) {
	if len(q.Jobs) > mostDescribed {
		clientError(w, "The number of jobs must be at most 100")
		return
	}
	c.advance()
	found := []map[string]any{}
	for _, j := range c.jobs {
		if !slices.Contains(q.Jobs, j.ID) || c.Hidden[j.Name] {
			continue
		}
		d := j.summary()
		d["jobQueue"], d["isTerminated"], d["isCancelled"] = j.Queue, j.Terminated, j.Cancelled
		container := map[string]any{"command": j.Command}
		if j.Logged {
			container["logStreamName"], container["containerInstanceArn"] = j.stream(), j.Instance
		}
		if j.ExitCode != nil {
			container["exitCode"] = *j.ExitCode
		}
		if j.ContainerReason != "" {
			container["reason"] = j.ContainerReason
		}
		d["container"] = container
		found = append(found, d)
	}
	reply(w, map[string]any{"jobs": found})
}

func (j *Job) stream() string { return "codalab-worker/default/" + j.ID }

func (c *Cloud) terminate(w http.ResponseWriter, q request, _ json.RawMessage) {
	for _, j := range c.jobs {
		if j.ID != q.JobID {
			continue
		}
		switch j.Status {
		case "SUCCEEDED", "FAILED":
		case "STARTING", "RUNNING":
			code := int32(128 + 15)
			j.Status, j.StatusReason, j.Terminated, j.ExitCode, j.Stopped = "FAILED", q.Reason, true, &code, c.now().UnixMilli()
			if c.Done != "" {
				j.Lines = append(j.Lines, c.Done)
			}
		default:
			j.Status, j.StatusReason, j.Cancelled, j.Stopped = "FAILED", q.Reason, true, c.now().UnixMilli()
		}
	}
	reply(w, map[string]any{})
}

func (c *Cloud) register(w http.ResponseWriter, q request, body json.RawMessage) {
	var d map[string]any
	if err := json.Unmarshal(body, &d); err != nil {
		clientError(w, err.Error())
		return
	}
	switch bad := badRequirement(body); {
	case d["containerProperties"] == nil:
		clientError(w, "Container properties should not be empty")
		return
	case !jobName.MatchString(q.JobDefinitionName):
		clientError(w, "Job Definition name should match valid pattern")
		return
	case bad != "":
		clientError(w, bad)
		return
	}
	revision := 1
	for _, other := range c.definitions {
		if other["jobDefinitionName"] == q.JobDefinitionName {
			revision++
		}
	}
	name := fmt.Sprintf("%s:%d", q.JobDefinitionName, revision)
	d["revision"], d["status"], d["jobDefinitionArn"] = revision, "ACTIVE", arn("job-definition", name)
	c.definitions = append(c.definitions, d)
	reply(w, map[string]any{"jobDefinitionName": q.JobDefinitionName, "jobDefinitionArn": d["jobDefinitionArn"], "revision": revision})
}

func (c *Cloud) describeDefinitions(w http.ResponseWriter, q request, _ json.RawMessage) {
	found := []map[string]any{}
	for _, d := range c.definitions {
		if d["jobDefinitionName"] == q.JobDefinitionName && (q.Status == "" || d["status"] == q.Status) {
			found = append(found, d)
		}
	}
	some, next := page(c, found, q, 100)
	answer := map[string]any{"jobDefinitions": some}
	if next != "" {
		answer["nextToken"] = next
	}
	reply(w, answer)
}

func (c *Cloud) describeQueues(w http.ResponseWriter, q request, _ json.RawMessage) {
	found := []map[string]any{}
	for _, name := range q.JobQueues {
		if queue := c.queue(name); queue != nil {
			found = append(found, queue)
		}
	}
	reply(w, map[string]any{"jobQueues": found})
}

func (c *Cloud) describeEnvironments(w http.ResponseWriter, q request, _ json.RawMessage) {
	found := []map[string]any{}
	for name, e := range c.Environments {
		if slices.Contains(q.ComputeEnvironments, name) || slices.Contains(q.ComputeEnvironments, fmt.Sprint(e["computeEnvironmentArn"])) {
			found = append(found, e)
		}
	}
	reply(w, map[string]any{"computeEnvironments": found})
}

// logEvents answers a page of a log. The token of the next page is its position; the last page has its own (API_GetLogEvents:
// nextForwardToken).
func (c *Cloud) logEvents(w http.ResponseWriter, q request, _ json.RawMessage) {
	for _, j := range c.jobs {
		if j.stream() != q.LogStreamName || !j.Logged || q.LogGroupName != "/aws/batch/job" {
			continue
		}
		q.NextToken = strings.TrimPrefix(q.NextToken, "f/")
		from, _ := strconv.Atoi(q.NextToken) // none is 0
		lines, _ := page(c, j.Lines, q, 10_000)
		events := []map[string]any{}
		for _, line := range lines {
			events = append(events, map[string]any{"message": line, "timestamp": j.Started, "ingestionTime": j.Started})
		}
		reply(w, map[string]any{
			"events": events, "nextForwardToken": fmt.Sprintf("f/%d", from+len(lines)), "nextBackwardToken": "b/0",
		})
		return
	}
	refuse(w, http.StatusBadRequest, "ResourceNotFoundException", "The specified log stream does not exist.")
}
