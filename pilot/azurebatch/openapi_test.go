package azurebatch_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
)

// openAPIFile has the names, types, required properties and words of the definitions that the client uses, as they stand in
// Microsoft's description of the service: BatchService.json of APIVersion, in the public repository
// Azure/azure-rest-api-specs, specification/batch/data-plane/Batch/stable. A definition with additionalProperties was not
// compared. openAPIVariable has the path of the whole description, in its place.
const (
	openAPIFile     = "testdata/openapi.json"
	openAPIVariable = "CLTEST_AZURE_OPENAPI"
)

type object = map[string]any

// openAPI is a description of a service, in OpenAPI 2.0.
type openAPI struct {
	Paths       map[string]map[string]operation `json:"paths"`
	Definitions map[string]object               `json:"definitions"`
	Parameters  map[string]parameter            `json:"parameters"`
}

type operation struct {
	Parameters []parameter `json:"parameters"`
	Responses  map[string]struct {
		Schema object `json:"schema"`
	} `json:"responses"`
}

type parameter struct {
	Ref    string `json:"$ref"`
	Name   string `json:"name"`
	In     string `json:"in"`
	Schema object `json:"schema"`
}

// exchange is a request with its answer.
type exchange struct {
	request  *http.Request
	sent     []byte
	status   int
	received []byte
	octets   bool // the answer is a file
}

// recorder is a transport that keeps exchanges.
type recorder struct {
	mu  sync.Mutex
	all []exchange
}

func (r *recorder) Do(request *http.Request) (*http.Response, error) {
	e := exchange{request: request}
	if request.Body != nil {
		e.sent, _ = io.ReadAll(request.Body)
		request.Body = io.NopCloser(bytes.NewReader(e.sent))
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	e.received, err = io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(bytes.NewReader(e.received))
	e.status, e.octets = answer.StatusCode, answer.Header.Get("Content-Type") == "application/octet-stream"
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
	return answer, err
}

// TestRequestsAndAnswersAreThoseOfTheOpenAPIFile lets a backend make all of its requests, and compares each request and
// each answer of the stand-in with Microsoft's description.
func TestRequestsAndAnswersAreThoseOfTheOpenAPIFile(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	data, err := os.ReadFile(cmp.Or(os.Getenv(openAPIVariable), openAPIFile))
	testenv.Must(t, err)
	var api openAPI
	testenv.Must(t, json.Unmarshal(data, &api))
	r := &recorder{}
	exerciseAll(t, r)
	operations := map[string]bool{}
	for _, e := range r.all {
		name, wrong := api.compare(e)
		operations[name] = true
		for _, text := range wrong {
			t.Errorf("%s %s: %s", e.request.Method, e.request.URL, text)
		}
	}
	if len(operations) != 10 {
		t.Errorf("%d operations: %v", len(operations), operations)
	}
}

// TestFieldsOfTheClientAreThoseOfTheOpenAPIFile compares the fields that the client reads: a wrong name would only be empty.
func TestFieldsOfTheClientAreThoseOfTheOpenAPIFile(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	data, err := os.ReadFile(cmp.Or(os.Getenv(openAPIVariable), openAPIFile))
	testenv.Must(t, err)
	var api openAPI
	testenv.Must(t, json.Unmarshal(data, &api))
	for name, value := range map[string]any{
		"BatchTaskCreateOptions": azurebatch.Task{}, "BatchTask": azurebatch.TaskInfo{}, "BatchPool": azurebatch.Pool{}, "BatchNode": azurebatch.Node{}, "BatchNodeCounts": azurebatch.NodeCounts{},
	} {
		for _, wrong := range api.strangeFields(name, reflect.TypeOf(value), object{"$ref": "#/definitions/" + name}) {
			t.Error(wrong)
		}
	}
}

// strangeFields returns the fields of a type that a schema does not have, or has with another type.
func (api openAPI) strangeFields(path string, of reflect.Type, schema object) (wrong []string) {
	if ref, ok := schema["$ref"].(string); ok {
		schema = api.Definitions[strings.TrimPrefix(ref, "#/definitions/")]
	}
	if schema["additionalProperties"] == true {
		return nil
	}
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	want := map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Int64: "integer", reflect.Bool: "boolean", reflect.Slice: "array", reflect.Struct: "object"}[of.Kind()]
	if of == reflect.TypeFor[time.Time]() {
		want = "string"
	}
	if schema["type"] != want {
		return []string{fmt.Sprintf("%s is %v, and not %s", path, schema["type"], want)}
	}
	switch want {
	case "array":
		items, _ := schema["items"].(object)
		return api.strangeFields(path+"[]", of.Elem(), items)
	case "object":
		properties, _ := schema["properties"].(object)
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			inner, ok := properties[name].(object)
			if !ok {
				wrong = append(wrong, path+" has no "+name)
				continue
			}
			wrong = append(wrong, api.strangeFields(path+"."+name, of.Field(i).Type, inner)...)
		}
	}
	return wrong
}

// exerciseAll makes each request of a backend.
func exerciseAll(t *testing.T, r *recorder) {
	t.Helper()
	s := newSite(t, 2)
	options := quick()
	options.Transport = r
	c, err := azurebatch.NewClient(s.URL, azurebatch.Credential{Account: s.Account, Key: s.Key}, azurebatch.Options{ClientOptions: options})
	testenv.Must(t, err)
	s.Client, s.PageSize = c, 2
	var all []pilot.Pilot
	for range 4 {
		all = append(all, s.start(t))
	}
	s.Print(all[0].Name, "stderr.txt", "one\n")
	_, err = s.log(t, all[0])
	testenv.Must(t, err)
	s.Finish(all[0].Name, 1)
	s.pilots(t)
	testenv.Must(t, s.Stop(t.Context(), all[1]))
	testenv.Must(t, s.Stop(t.Context(), all[1])) // which is refused
	s.Age(all[0].Name, 10*24*time.Hour)
	s.SetNodes("unusable", "DiskFull", "There is not enough disk space on the node.")
	late := s.start(t)
	s.Age(late.Name, time.Hour)
	s.Backend.Check(t.Context())
	s.pilots(t)
	s.Backend = s.open(t, "codalab")
	s.Client = c
	s.pilots(t)
	testenv.Must(t, s.Tidy(t.Context(), pilottest.NewToken))
}

// find returns the operation of a request. Templates with fewer parameters come first.
func (api openAPI) find(r *http.Request) (name string, o operation, ok bool) {
	parts := strings.Split(r.URL.Path, "/")
	best := -1
	for template, methods := range api.Paths {
		words := strings.Split(template, "/")
		literal := 0
		same := len(words) == len(parts)
		for i := 0; same && i < len(words); i++ {
			if strings.HasPrefix(words[i], "{") {
				continue
			}
			literal++
			same = words[i] == parts[i]
		}
		candidate, there := methods[strings.ToLower(r.Method)]
		if same && there && literal > best {
			best, name, o, ok = literal, r.Method+" "+template, candidate, true
		}
	}
	return name, o, ok
}

// compare returns the differences of an exchange.
func (api openAPI) compare(e exchange) (name string, wrong []string) {
	name, o, ok := api.find(e.request)
	if !ok {
		return "", []string{"there is no such operation"}
	}
	known := []string{}
	for _, p := range o.Parameters {
		if p.Ref != "" {
			p = api.Parameters[p.Ref[strings.LastIndex(p.Ref, "/")+1:]]
		}
		switch p.In {
		case "query", "header":
			known = append(known, strings.ToLower(p.Name))
		case "body":
			wrong = append(wrong, api.conform("the body", e.sent, p.Schema, true)...)
		}
	}
	for parameter := range e.request.URL.Query() {
		if parameter != "$skiptoken" && !slices.Contains(known, strings.ToLower(parameter)) { // which is the service's own
			wrong = append(wrong, "there is no parameter "+parameter)
		}
	}
	if e.request.Header.Get("Ocp-Range") != "" && !slices.Contains(known, "ocp-range") {
		wrong = append(wrong, "there is no header ocp-range")
	}
	answer, ok := o.Responses[fmt.Sprint(e.status)]
	switch {
	case !ok && e.status < http.StatusBadRequest:
		return name, append(wrong, fmt.Sprintf("there is no status %d", e.status))
	case !ok:
		answer = o.Responses["default"]
	}
	if answer.Schema != nil && !e.octets {
		whole := e.request.URL.Query().Get("$select") == "" // else some of the required properties are missing
		wrong = append(wrong, api.conform("the answer", e.received, answer.Schema, whole)...)
	}
	return name, wrong
}

func (api openAPI) conform(what string, data []byte, schema object, whole bool) []string {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return []string{fmt.Sprintf("%s is no JSON: %v: %s", what, err, data)}
	}
	return api.differences(what, value, schema, whole)
}

// differences returns the differences of a value from a schema.
func (api openAPI) differences(path string, value any, schema object, whole bool) (wrong []string) {
	if ref, ok := schema["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/definitions/")
		if schema, ok = api.Definitions[name]; !ok {
			return []string{path + ": there is no definition " + name}
		}
	}
	if choices, ok := schema["enum"].([]any); ok && !slices.Contains(choices, value) {
		wrong = append(wrong, fmt.Sprintf("%s is %v, want one of %v", path, value, choices))
	}
	switch v := value.(type) {
	case object:
		if schema["additionalProperties"] == true {
			return wrong
		}
		properties, _ := schema["properties"].(object)
		required, _ := schema["required"].([]any)
		for name, inner := range v {
			definition, ok := properties[name].(object)
			switch {
			case strings.HasPrefix(name, "odata."): // of the protocol
			case !ok:
				wrong = append(wrong, path+"."+name+" is no property")
			default:
				wrong = append(wrong, api.differences(path+"."+name, inner, definition, whole || path != "the answer" && !strings.HasSuffix(path, "]"))...)
			}
		}
		for _, name := range required {
			if _, ok := v[fmt.Sprint(name)]; whole && !ok {
				wrong = append(wrong, fmt.Sprintf("%s.%s is missing", path, name))
			}
		}
	case []any:
		items, _ := schema["items"].(object)
		for i, inner := range v {
			wrong = append(wrong, api.differences(fmt.Sprintf("%s[%d]", path, i), inner, items, whole)...)
		}
	case float64:
		if kind := schema["type"]; kind != "integer" && kind != "number" {
			wrong = append(wrong, fmt.Sprintf("%s is a number, want %v", path, kind))
		}
	case bool:
		if kind := schema["type"]; kind != "boolean" {
			wrong = append(wrong, fmt.Sprintf("%s is a boolean, want %v", path, kind))
		}
	case string:
		_, err := time.Parse(time.RFC3339, v)
		if schema["type"] != "string" || schema["format"] == "date-time" && err != nil {
			wrong = append(wrong, fmt.Sprintf("%s is the text %q, want %v %v", path, v, schema["type"], schema["format"]))
		}
	}
	return wrong
}
