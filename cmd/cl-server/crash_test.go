package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// asServer makes the test program cl-server.
const asServer = "CLTEST_AS_CL_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process is a cl-server in a process of its own.
type process struct {
	t       *testing.T
	kill    func() // as kill -9; returns when the process has ended
	address string
	alice
}

// alice is a signed-in user. Her token stays valid after a kill of the server.
type alice struct{ token, home string }

// signIn signs alice in. That is slow by design.
func (p *process) signIn() {
	p.t.Helper()
	p.token = login(p.t, p.address, "alice", "correct horse")
	p.home = p.object(p.t.Context(), http.MethodGet, "/worksheets?specs=/", nil)
}

func startProcess(t *testing.T, flags []string) *process {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{"run", "--listen", "127.0.0.1:0"}, flags...)...)
	cmd.Env = append(os.Environ(), asServer+"=1")
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t}
	over := make(chan struct{})
	p.kill = func() {
		_ = cmd.Process.Kill() // it may have ended
		<-over
	}
	t.Cleanup(p.kill)
	log := bufio.NewReader(stderr)
	for p.address == "" && err == nil {
		var line string
		line, err = log.ReadString('\n')
		if m := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(line); m != nil {
			p.address = m[1]
		} else {
			t.Log(line)
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, log)
		_ = cmd.Wait() // it is killed
		close(over)
	}()
	if err != nil {
		t.Fatalf("the server does not start: %v", err)
	}
	return p
}

// send sends a request of alice and returns its answer; nothing if the server has gone.
func (p *process) send(ctx context.Context, method, path string, body io.Reader) (status int, answer []byte) {
	r, err := http.NewRequestWithContext(ctx, method, p.address+"/rest"+path, body)
	if err != nil {
		p.t.Error(err)
		return 0, nil
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil
	}
	defer a.Body.Close()
	answer, _ = io.ReadAll(a.Body)
	return a.StatusCode, answer
}

// object sends a request and returns the id of the object in the answer.
func (p *process) object(ctx context.Context, method, path string, body io.Reader) string {
	var doc struct{ Data []struct{ ID string } }
	status, answer := p.send(ctx, method, path, body)
	if status != http.StatusOK || json.Unmarshal(answer, &doc) != nil || len(doc.Data) == 0 {
		if status != 0 {
			p.t.Errorf("%s %s: %d %s", method, path, status, answer)
		}
		return ""
	}
	return doc.Data[0].ID
}

// create creates a dataset.
func (p *process) create(ctx context.Context) string {
	metadata := map[string]any{}
	for _, k := range codalab.MetadataKeys(codalab.TypeDataset) {
		if !k.Generated {
			metadata[k.Key] = k.Default
		}
	}
	metadata["name"] = "x"
	body, err := json.Marshal(map[string]any{"data": []any{map[string]any{
		"type": "bundles", "attributes": map[string]any{"bundle_type": "dataset", "metadata": metadata, "dependencies": []any{}},
	}}})
	if err != nil {
		p.t.Error(err)
	}
	return p.object(ctx, http.MethodPost, "/bundles?worksheet="+p.home, bytes.NewReader(body))
}

// countdown kills the server at the end of a number of events.
type countdown struct {
	left atomic.Int64
	kill func()
}

func (c *countdown) event() {
	if c.left.Add(-1) == 0 {
		c.kill()
	}
}

// body is an upload of which each part that is sent is an event.
type body struct {
	left   int
	events *countdown
}

func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	b.events.event()
	n := min(b.left, len(p), 1000)
	b.left -= n
	return n, nil
}

// use uploads, replaces and deletes bundles until the server has gone.
func (p *process) use(ctx context.Context, random *rand.Rand, events *countdown) {
	for events.left.Load() > 0 {
		uuid := p.create(ctx)
		events.event()
		for _, finalize := range []string{"0", "1"} {
			path := "/bundles/" + uuid + "/contents/blob/?filename=x&finalize_on_success=" + finalize
			p.send(ctx, http.MethodPut, path, &body{random.IntN(40_000), events})
			events.event()
		}
		if random.IntN(3) == 0 {
			p.send(ctx, http.MethodDelete, "/bundles?force=1", strings.NewReader(`{"data": [{"type": "bundles", "id": "`+uuid+`"}]}`))
			events.event()
		}
	}
}

// After kill -9 at any point, the next start leaves sizes, disk use and contents right.
func TestDataAreSoundAfterAKill(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, flags []string) {
		fsck := append([]string{"fsck", "--json"}, flags...)
		does(t, "correct horse", append([]string{"user", "add", "alice"}, flags...)...)
		p := startProcess(t, flags)
		p.signIn()
		for round := range uint64(5) {
			if round > 0 {
				user := p.alice
				p = startProcess(t, flags)
				p.alice = user
			}
			events := &countdown{kill: p.kill}
			events.left.Store(1 + rand.New(rand.NewPCG(round, 7)).Int64N(300))
			var wg sync.WaitGroup
			for worker := range uint64(3) {
				wg.Go(func() { p.use(t.Context(), rand.New(rand.NewPCG(round, worker)), events) })
			}
			wg.Wait()
			again := startProcess(t, flags)
			if found := does(t, "", fsck...); found != "{\n  \"findings\": [],\n  \"served\": true\n}\n" {
				t.Errorf("round %d: %s", round, found)
			}
			again.kill()
			if found := does(t, "", fsck...); found != "{\n  \"findings\": [],\n  \"served\": false\n}\n" {
				t.Errorf("round %d, no server: %s", round, found)
			}
		}
		backup := filepath.Join(t.TempDir(), "backup")
		if said := does(t, "", append([]string{"backup", backup}, flags...)...); !regexp.MustCompile(`: [1-9]\d* bundles, [1-9]\d* with contents\n$`).MatchString(said) {
			t.Errorf("the test is vain: %s", said)
		}
	})
}
