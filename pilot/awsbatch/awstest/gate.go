package awstest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
)

// Gate stands before a service and makes faults. It counts the requests.
type Gate struct {
	// Service answers the requests.
	Service http.Handler

	mu       sync.Mutex
	counts   map[string]int
	answered map[string]bool    // the reading requests that were answered without a fault, by invocation
	faults   map[string][]fault // by operation; the next one comes first
	cut      *int               // the changes that are answered until the service is cut off; nil for no cut
}

// fault is the fate of one request. answer is nil for an answer of the service that is lost on its way.
type fault struct {
	answer func(w http.ResponseWriter)
	held   <-chan struct{} // closed when the service may get the request
}

// operation returns the name of a request's operation in small letters: of Batch in the path, of CloudWatch in a header.
func operation(r *http.Request) string {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		return strings.ToLower(target[strings.LastIndex(target, ".")+1:])
	}
	return strings.ToLower(path.Base(r.URL.Path))
}

// ServeHTTP passes a request on, unless a fault is due.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := operation(r)
	g.mu.Lock()
	if g.counts == nil {
		g.counts, g.answered = map[string]int{}, map[string]bool{}
	}
	invocation := r.Header.Get("Amz-Sdk-Invocation-Id")
	if !g.answered[invocation] {
		g.counts[name]++
	}
	var due *fault
	if list := g.faults[name]; len(list) > 0 {
		due, g.faults[name] = &list[0], list[1:]
	}
	lost := false // the answer
	if g.cut != nil && changes(name) {
		*g.cut--
		lost = *g.cut == -1
	}
	unreachable := g.cut != nil && *g.cut < 0 && !lost
	g.mu.Unlock()
	switch {
	case unreachable:
		panic(http.ErrAbortHandler) // the client sees a closed connection
	case due == nil && !lost:
		if invocation != "" && !changes(name) {
			w = &answerWriter{w, func() {
				g.mu.Lock()
				g.answered[invocation] = true
				g.mu.Unlock()
			}}
		}
		g.Service.ServeHTTP(w, r)
	case due == nil:
		g.Service.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case due.held != nil:
		select {
		case <-due.held:
			g.Service.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	case due.answer != nil:
		due.answer(w)
	default:
		g.Service.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
}

// answerWriter tells of an answer that is no refusal, before the client sees any of it.
type answerWriter struct {
	http.ResponseWriter

	answers func()
}

// Write writes a part of the answer, which has no status of its own.
func (a *answerWriter) Write(b []byte) (int, error) {
	if a.answers != nil {
		a.answers()
		a.answers = nil
	}
	return a.ResponseWriter.Write(b) //nolint:wrapcheck // it is that of the writer
}

// WriteHeader writes the status of a refusal, or of an answer.
func (a *answerWriter) WriteHeader(code int) {
	if code != http.StatusOK {
		a.answers = nil
	}
	a.ResponseWriter.WriteHeader(code)
}

// changes reports whether an operation changes something.
func changes(operation string) bool {
	return operation == "submitjob" || operation == "registerjobdefinition" || operation == "terminatejob"
}

// Cut lets the service answer n further requests that change something. The next such request takes effect, but its
// answer is lost, and then no request arrives until Mend.
func (g *Gate) Cut(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = &n
}

// Mend ends a cut.
func (g *Gate) Mend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = nil
}

func (g *Gate) add(name string, f fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.faults == nil {
		g.faults = map[string][]fault{}
	}
	name = strings.ToLower(name)
	g.faults[name] = append(g.faults[name], f)
}

// LoseAnswer makes the next request of an operation have its effect, and breaks the connection before the answer.
func (g *Gate) LoseAnswer(operation string) { g.add(operation, fault{}) }

// Refuse makes the next request of an operation fail with a status and an error of AWS.
func (g *Gate) Refuse(operation string, status int, code, message string) {
	g.add(operation, fault{answer: func(w http.ResponseWriter) { refuse(w, status, code, message) }})
}

// Hold keeps the next request of an operation until the returned function is called.
func (g *Gate) Hold(operation string) (release func()) {
	held := make(chan struct{})
	g.add(operation, fault{held: held})
	return sync.OnceFunc(func() { close(held) })
}

// Requests returns the number of requests of an operation; with an empty name, of all. A question that the library
// asks again although it was answered counts once: the library closes a request's body early, and Go's client then
// may close the connection under a large answer that comes at once, as it does here.
func (g *Gate) Requests(operation string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if operation != "" {
		return g.counts[strings.ToLower(operation)]
	}
	all := 0
	for _, n := range g.counts {
		all += n
	}
	return all
}

// Operations returns the names of the operations that were asked for, in small letters and in order.
func (g *Gate) Operations() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.counts))
}

// refuse answers with an error of AWS (restJson1 and awsJson1_1 both have the code in a header or in the body).
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Amzn-Errortype", code)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": message}) // the client may have gone
}

// reply answers with a value.
func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the client may have gone
}
