package awstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// stopWithin is the time between TERM and KILL (ECS developer guide, ECS_CONTAINER_STOP_TIMEOUT).
const stopWithin = "30"

// end is the end of a job that TerminateJob was asked for.
type end struct {
	reason string
	code   *int // of its container, once this has ended
}

// terminate ends a container as ECS does: it gets TERM, and 30 seconds later KILL. moto sends KILL at once, and still does
// so for a job without a container.
func (m *Moto) terminate(w http.ResponseWriter, r *http.Request) {
	body := readBody(r)
	id := fmt.Sprint(body["jobId"])
	names, err := m.command(r.Context(), "ps", "--format", "{{.Names}}", "--filter", "name="+id).Output()
	name := strings.TrimSpace(string(names))
	if err != nil || name == "" {
		data, err := json.Marshal(body)
		testenv.Must(m.tb, err)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
		m.upstream.ServeHTTP(w, r)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ends[id] == nil {
		e := &end{reason: fmt.Sprint(body["reason"])}
		m.ends[id] = e
		m.stopping.Go(func() { m.stop(name, e) })
	}
	reply(w, map[string]any{})
}

// stop stops a container, and keeps its exit code.
func (m *Moto) stop(name string, e *end) {
	ended := m.command(m.ctx, "wait", name)
	var code strings.Builder
	ended.Stdout = &code
	if err := ended.Start(); err != nil {
		return
	}
	_ = m.command(m.ctx, "stop", "--time", stopWithin, name).Run() // it may have ended
	_ = ended.Wait()
	if n, err := strconv.Atoi(strings.TrimSpace(code.String())); err == nil {
		m.mu.Lock()
		e.code = &n
		m.mu.Unlock()
	}
}

// tellEnd gives a job that TerminateJob has ended the state, the reason and the exit code that AWS gives it.
func (m *Moto) tellEnd(j map[string]any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.ends[fmt.Sprint(j["jobId"])]
	if e == nil || j["status"] != "SUCCEEDED" && j["status"] != "FAILED" {
		return
	}
	j["status"], j["statusReason"], j["isTerminated"] = "FAILED", e.reason, true
	if e.code == nil {
		return
	}
	container, ok := j["container"].(map[string]any)
	if !ok {
		container = map[string]any{}
		j["container"] = container
	}
	container["exitCode"] = *e.code
}
