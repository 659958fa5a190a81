package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/kubernetes"
)

// made has the made-up nodes of the cluster, which kwok plays. TestMain removes them.
var made struct {
	sync.Once
	script string
	err    error
}

// madeUpNodes lets the cluster have eight made-up nodes for 200 pods each, fake-0 to fake-7. Pods start there, and run nothing.
func madeUpNodes(t *testing.T, c *realCluster) {
	t.Helper()
	made.Do(func() {
		out, err := exec.CommandContext(t.Context(), c.script, "fake-nodes", "8").CombinedOutput()
		if made.script = c.script; err != nil {
			made.err = fmt.Errorf("fake-nodes: %w: %s", err, out)
		}
	})
	testenv.Must(t, made.err)
}

// removeMadeUpNodes removes the nodes of madeUpNodes.
func removeMadeUpNodes() error {
	if made.script == "" {
		return nil
	}
	return exec.Command(made.script, "fake-nodes", "0").Run()
}

// fleet returns a backend whose pods go to made-up nodes.
func (s *site) fleet() *kubernetes.Backend {
	s.t.Helper()
	b := s.backend("lab", "")
	b.Settings.Image, b.Settings.NodeSelector = "none.example/none:1", map[string]string{"type": "kwok"}
	b.Settings.Tolerations = []corev1.Toleration{{Key: "kwok.x-k8s.io/node", Operator: corev1.TolerationOpExists}}
	return b
}

// roll is a server without bundles to which all workers of its list check in. Workers have at most one token.
type roll struct {
	workers []codalab.WorkerInfo
	tokens  sync.Map
}

func (*roll) SearchBundles(context.Context, string, []string) ([]client.BundleInfo, json.RawMessage, error) {
	return nil, nil, nil
}

func (r *roll) Workers(context.Context) ([]codalab.WorkerInfo, error) { return r.workers, nil }

func (*roll) Bundle(context.Context, string, ...string) (client.BundleInfo, error) {
	return client.BundleInfo{}, errors.New("no such bundle")
}

func (r *roll) WorkerToken(_ context.Context, workerID string, _ time.Duration) (string, error) {
	r.tokens.Store(workerID, true)
	return "token-of-" + workerID, nil
}

func (r *roll) EndWorkerTokens(_ context.Context, workerID string) error {
	r.tokens.Delete(workerID)
	return nil
}

// thousand is a manager of a thousand workers, whose clock stands still unless a test moves it.
type thousand struct {
	*site
	*pilot.Manager
	roll
	b   *kubernetes.Backend
	now time.Time
}

const (
	fleetSize = 1000
	unplaced  = 50 // pods that no node takes
)

// newThousand makes the pods of a thousand workers of an earlier manager, most of them with a node, and a new manager with a
// watch.
func newThousand(t *testing.T) *thousand {
	t.Helper()
	f := &thousand{site: newSite(t), now: time.Now()}
	f.site.large = true
	madeUpNodes(t, f.cluster)
	var group errgroup.Group
	group.SetLimit(8)
	b := f.fleet()
	for i := range fleetSize {
		group.Go(func() error { return f.adopt(b, i) })
	}
	testenv.Must(t, group.Wait())
	f.b = f.watched(f.fleet())
	f.Manager = &pilot.Manager{
		Server: &f.roll, Backend: f.b, Shape: pilot.Shape{CPUs: 1, Memory: 32 << 20}, Min: fleetSize, Max: fleetSize, MostFailed: -1,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return f.now },
	}
	f.awaitCounts(fleetSize-unplaced, unplaced)
	return f
}

// adopt makes the pod of a worker with a token. The first ones find no node.
func (f *thousand) adopt(b *kubernetes.Backend, i int) error {
	name := b.NewName()
	text, err := b.Preview(name)
	if err != nil {
		return err
	}
	var pod corev1.Pod
	podText, _, _ := strings.Cut(text, "---\n")
	if err := yaml.Unmarshal([]byte(podText), &pod); err != nil {
		return err
	}
	if i < unplaced {
		pod.Spec.NodeSelector = map[string]string{"zone": "moon"}
	} else {
		pod.Spec.NodeName = fmt.Sprint("fake-", i%8)
	}
	if code, answer := f.try(http.MethodPost, f.path("pods"), pod); code != http.StatusCreated {
		return fmt.Errorf("make a pod: %d %s", code, answer)
	}
	_, err = f.WorkerToken(f.t.Context(), pilot.WorkerID(name), time.Hour)
	return err
}

// in returns the names of the workers in a phase, in order.
func (f *thousand) in(phase pilot.Phase) []string {
	f.t.Helper()
	pilots, err := f.b.Pilots(f.t.Context())
	testenv.Must(f.t, err)
	var names []string
	for _, p := range pilots {
		if p.Phase == phase {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// awaitCounts waits for numbers of active and of pending workers. The active ones check in to the server.
func (f *thousand) awaitCounts(active, pending int) {
	f.t.Helper()
	var running []string
	var waiting int
	testenv.Await(f.t, fmt.Sprintf("%d workers are active, and %d are pending", active, pending), func() bool {
		running, waiting = f.in(pilot.Active), len(f.in(pilot.Pending))
		return len(running) == active && waiting == pending
	}, &waiting)
	f.workers = nil
	for _, name := range running {
		f.workers = append(f.workers, codalab.WorkerInfo{WorkerID: pilot.WorkerID(name), CPUs: 1, MemoryBytes: 32 << 20, ExitAfterNumRuns: codalab.UnlimitedRuns})
	}
}

// pass lets the manager pass some time later, and checks the number of workers that it starts.
func (f *thousand) pass(after time.Duration, what string, starts int) {
	f.t.Helper()
	f.now = f.now.Add(after)
	before := f.proxy.count("POST pods")
	testenv.Must(f.t, f.Pass(f.t.Context()))
	if n := f.proxy.count("POST pods") - before; n != starts {
		f.t.Errorf("%s: %d workers were started, want %d", what, n, starts)
	}
}

// TestThousandWorkersAreReplacedOneForOne lets workers of a thousand be evicted, deleted and fail while the watch breaks off,
// and some never get a node. The manager replaces each one once.
func TestThousandWorkersAreReplacedOneForOne(t *testing.T) {
	t.Parallel()
	f := newThousand(t)
	f.pass(0, "all are there", 0)
	first := f.in(pilot.Active)
	gone := first[:150]
	f.proxy.answers("WATCH pods", http.StatusGone, http.StatusGone)
	f.proxy.cutStreams()
	for _, name := range gone[:50] {
		f.api(http.MethodPost, f.path("pods/"+name+"/eviction"), map[string]any{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": name}})
	}
	for _, name := range gone[50:100] {
		f.api(http.MethodDelete, f.path("pods/"+name)+"?gracePeriodSeconds=0", nil)
	}
	for _, name := range gone[100:] { // as the kubelet does (pkg/kubelet/eviction: evictPod)
		f.patch("pods/"+name+"/status", `{"status":{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}}`)
	}
	f.awaitCounts(fleetSize-unplaced-len(gone), unplaced)
	f.pass(time.Minute, "150 are gone", len(gone))
	f.awaitCounts(fleetSize-unplaced, unplaced)
	f.pass(time.Minute, "they are replaced", 0)

	f.pass(11*time.Minute, "the patience with 50 ends", 0)
	f.awaitCounts(fleetSize-unplaced, 0)
	f.pass(time.Hour, "the back-off after them ends", unplaced)
	f.awaitCounts(fleetSize, 0)
	f.pass(time.Minute, "all are there again", 0)
	for _, name := range gone {
		if _, valid := f.tokens.Load(pilot.WorkerID(name)); valid {
			t.Errorf("%s is gone, and its token is valid", name)
		}
	}
	if kept := f.in(pilot.Active); len(slices.DeleteFunc(first[150:], func(name string) bool { return slices.Contains(kept, name) })) > 0 {
		t.Error("a worker has ended that nobody ended")
	}
}
