package awstest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/batch"
	"github.com/aws/aws-sdk-go-v2/service/batch/types"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// Image is the name of the image in the engine of a Moto. It has the program /worker and nothing else.
const Image = "awstest-worker:1"

// instanceARN is the ECS instance of all containers of a Moto.
const instanceARN = "arn:aws:ecs:" + Region + ":" + account + ":container-instance/moto/0123456789abcdef"

// Moto is a moto_server behind a proxy, for one test. The proxy mends two numbers that AWS's Go library cannot read, and
// adds what moto lacks: pages, the state that ListJobs means if none is given, the output of running containers, their
// instance, and TERM before KILL.
type Moto struct {
	Gate
	URL string
	// Queue is a job queue of its own, and Dir the directory for the files of its workers.
	Queue, Dir string
	// Page is the most jobs in one answer.
	Page int

	tb           testing.TB
	docker, cmd  string // the engine's address, and Docker's client
	upstream     *httputil.ReverseProxy
	mu           sync.Mutex
	gone         map[string]bool // jobs that have vanished, by name
	knownStreams map[string]string
	ends         map[string]*end // the jobs that TerminateJob ends, by id
	ctx          context.Context //nolint:containedctx // it ends with the test, and bounds the ends that a request begins
	stopping     sync.WaitGroup
}

// NewMoto returns a moto with a queue and an image, which ends with the test. worker is the path of the program that the
// image has.
func NewMoto(tb testing.TB, server *testenv.Moto, worker, queue string) *Moto {
	tb.Helper()
	address, err := url.Parse(server.URL(tb))
	testenv.Must(tb, err)
	m := &Moto{tb: tb, Queue: queue, Dir: tb.TempDir(), gone: map[string]bool{}, knownStreams: map[string]string{}, ends: map[string]*end{}}
	ctx, cancel := context.WithCancel(context.Background())
	m.ctx = ctx
	tb.Cleanup(func() { cancel(); m.stopping.Wait() })
	m.docker, m.cmd = server.Docker.Host(tb)
	m.upstream = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(address); r.Out.Host = r.In.Host }, ModifyResponse: mend}
	m.Service = http.HandlerFunc(m.answer)
	proxy := httptest.NewServer(&m.Gate)
	tb.Cleanup(proxy.Close)
	m.URL = proxy.URL
	m.importImage(worker)
	m.makeQueue()
	return m
}

// importImage makes an image of one program.
func (m *Moto) importImage(worker string) {
	m.tb.Helper()
	tar := exec.CommandContext(m.tb.Context(), "tar", "-c", "--transform=s/.*/worker/", "-C", filepath.Dir(worker), filepath.Base(worker))
	layer, err := tar.Output()
	testenv.Must(m.tb, err)
	load := m.command(m.tb.Context(), "import", "-", Image)
	load.Stdin = bytes.NewReader(layer)
	if said, err := load.CombinedOutput(); err != nil {
		m.tb.Fatalf("docker import: %v: %s", err, said)
	}
}

func (m *Moto) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, m.cmd, args...)
	c.Env = append(os.Environ(), "DOCKER_HOST="+m.docker)
	return c
}

// makeQueue makes a role, a compute environment and a job queue, as an owner does.
func (m *Moto) makeQueue() {
	m.tb.Helper()
	form := url.Values{"Action": {"CreateRole"}, "Version": {"2010-05-08"}, "RoleName": {m.Queue}, "AssumeRolePolicyDocument": {`{"Version":"2012-10-17","Statement":[]}`}}
	request, err := http.NewRequestWithContext(m.tb.Context(), http.MethodPost, m.URL+"/", strings.NewReader(form.Encode()))
	testenv.Must(m.tb, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=0")
	answer, err := http.DefaultClient.Do(request)
	testenv.Must(m.tb, err)
	body, err := io.ReadAll(answer.Body)
	testenv.Must(m.tb, err)
	_ = answer.Body.Close() // read
	role := regexp.MustCompile(`<Arn>([^<]+)</Arn>`).FindSubmatch(body)
	if role == nil {
		m.tb.Fatalf("create role: %s: %s", answer.Status, body)
	}
	b := batch.New(batch.Options{Region: Region, BaseEndpoint: &m.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIAEXAMPLE", "secret", "")})
	environment, err := b.CreateComputeEnvironment(m.tb.Context(), &batch.CreateComputeEnvironmentInput{
		ComputeEnvironmentName: &m.Queue, Type: types.CETypeUnmanaged, State: types.CEStateEnabled, ServiceRole: aws.String(string(role[1])),
	})
	testenv.Must(m.tb, err)
	_, err = b.CreateJobQueue(m.tb.Context(), &batch.CreateJobQueueInput{
		JobQueueName: &m.Queue, Priority: aws.Int32(1), State: types.JQStateEnabled,
		ComputeEnvironmentOrder: []types.ComputeEnvironmentOrder{{Order: aws.Int32(1), ComputeEnvironment: environment.ComputeEnvironmentArn}},
	})
	testenv.Must(m.tb, err)
}

// mend makes whole numbers of two that moto prints with a fraction.
func mend(r *http.Response) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("read moto's answer: %w", err)
	}
	_ = r.Body.Close() // read
	body = regexp.MustCompile(`"(vcpus|timestamp|ingestionTime)": ?(\d+)\.\d+`).ReplaceAll(body, []byte(`"$1":$2`))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

func (m *Moto) answer(w http.ResponseWriter, r *http.Request) {
	switch operation(r) {
	case "listjobs":
		m.list(w, r)
	case "describejobs":
		m.describe(w, r)
	case "getlogevents":
		m.logEvents(w, r)
	case "terminatejob":
		m.terminate(w, r)
	default:
		m.upstream.ServeHTTP(w, r)
	}
}

// ask sends a request to moto, with another body, and reads its answer. If moto refuses it, ask passes the refusal on and
// returns false.
func (m *Moto) ask(w http.ResponseWriter, r *http.Request, body, answer any) bool {
	data, err := json.Marshal(body)
	testenv.Must(m.tb, err)
	inner := r.Clone(r.Context())
	inner.Body, inner.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	recorded := httptest.NewRecorder()
	m.upstream.ServeHTTP(recorded, inner)
	if recorded.Code != http.StatusOK {
		for name, values := range recorded.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(recorded.Code)
		_, _ = w.Write(recorded.Body.Bytes()) // the client may have gone
		return false
	}
	if err := json.Unmarshal(recorded.Body.Bytes(), answer); err != nil {
		m.tb.Errorf("moto's answer: %v: %s", err, recorded.Body)
	}
	return true
}

// readBody reads a request.
func readBody(r *http.Request) map[string]any {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body) // AWS's library has written it
	return body
}

// list gives ListJobs pages, and its default state.
func (m *Moto) list(w http.ResponseWriter, r *http.Request) {
	body := readBody(r)
	if body["filters"] == nil && body["jobStatus"] == nil {
		body["jobStatus"] = "RUNNING"
	}
	token, _ := body["nextToken"].(string)
	delete(body, "nextToken")
	var all struct{ JobSummaryList []map[string]any }
	if !m.ask(w, r, body, &all) {
		return
	}
	jobs := m.present(all.JobSummaryList)
	for _, j := range jobs {
		m.tellEnd(j)
	}
	from, _ := strconv.Atoi(token) // none is 0
	from = min(from, len(jobs))
	to := len(jobs)
	if m.Page > 0 {
		to = min(to, from+m.Page)
	}
	answer := map[string]any{"jobSummaryList": jobs[from:to]}
	if to < len(jobs) {
		answer["nextToken"] = strconv.Itoa(to)
	}
	reply(w, answer)
}

// present leaves out the jobs that have vanished.
func (m *Moto) present(jobs []map[string]any) []map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Concat([]map[string]any{}, jobs), func(j map[string]any) bool { return m.gone[fmt.Sprint(j["jobName"])] })
}

// describe adds the name of the log's stream to running jobs.
func (m *Moto) describe(w http.ResponseWriter, r *http.Request) {
	var all struct{ Jobs []map[string]any }
	if !m.ask(w, r, readBody(r), &all) {
		return
	}
	jobs := m.present(all.Jobs)
	for _, j := range jobs {
		m.tellEnd(j)
		container, ok := j["container"].(map[string]any)
		if !ok || j["status"] != "RUNNING" && j["status"] != "SUCCEEDED" && j["status"] != "FAILED" {
			continue
		}
		arn := fmt.Sprint(j["jobDefinition"])
		name := arn[strings.LastIndex(arn, "/")+1:]
		stream := fmt.Sprintf("%s/default/%s", name[:strings.LastIndex(name, ":")], j["jobId"])
		container["logStreamName"], container["containerInstanceArn"] = stream, instanceARN
		m.mu.Lock()
		m.knownStreams[stream] = fmt.Sprintf("%s-%s", j["jobName"], j["jobId"])
		m.mu.Unlock()
	}
	reply(w, map[string]any{"jobs": jobs})
}

// logEvents answers with the output of the container, and after its end with the lines that moto has kept of it.
func (m *Moto) logEvents(w http.ResponseWriter, r *http.Request) {
	body := readBody(r)
	token, _ := body["nextToken"].(string)
	delete(body, "nextToken")
	m.mu.Lock()
	name := m.knownStreams[fmt.Sprint(body["logStreamName"])]
	m.mu.Unlock()
	var lines []string
	if out, err := m.command(r.Context(), "logs", name).Output(); err == nil {
		lines = strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		if len(out) == 0 {
			lines = nil
		}
	} else {
		var kept struct{ Events []struct{ Message string } }
		if !m.ask(w, r, body, &kept) {
			return
		}
		for _, e := range kept.Events {
			lines = append(lines, e.Message)
		}
	}
	from, _ := strconv.Atoi(strings.TrimPrefix(token, "f/")) // none is 0
	from = min(from, len(lines))
	events := []map[string]any{}
	for _, line := range lines[from:] {
		events = append(events, map[string]any{"message": line, "timestamp": 0})
	}
	reply(w, map[string]any{"events": events, "nextForwardToken": fmt.Sprintf("f/%d", len(lines)), "nextBackwardToken": "b/0"})
}

// Vanish removes a job and its container.
func (m *Moto) Vanish(name string) {
	m.tb.Helper()
	m.mu.Lock()
	m.gone[name] = true
	m.mu.Unlock()
	out, err := m.command(m.tb.Context(), "ps", "-aq", "--filter", "name="+name).Output()
	testenv.Must(m.tb, err)
	if ids := strings.Fields(string(out)); len(ids) > 0 {
		_ = m.command(m.tb.Context(), append([]string{"rm", "-f"}, ids...)...).Run() // it may have ended
	}
}

// Finish lets a worker end by itself.
func (m *Moto) Finish(workerID string) error {
	return os.WriteFile(filepath.Join(m.Dir, "finish-"+workerID), nil, 0o600)
}
