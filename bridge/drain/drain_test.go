package drain_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/drain"
	"github.com/cl-slurm/cl-slurm/spool"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// mounted is a shared directory that a bridge has used.
func mounted(t *testing.T) spool.Layout {
	t.Helper()
	l := spool.Layout(t.TempDir())
	if err := os.Mkdir(l.Runs(), 0o700); err != nil {
		t.Fatal(err)
	}
	return l
}

func read(t *testing.T, l spool.Layout) drain.Orders {
	t.Helper()
	orders, err := drain.In(l).Read(true)
	if err != nil {
		t.Fatal(err)
	}
	return orders
}

func TestOrderHoldsUntilItIsWithdrawn(t *testing.T) {
	t.Parallel()
	l := mounted(t)
	if orders := read(t, l); len(orders) > 0 {
		t.Errorf("nobody has given an order: %v", orders)
	}
	all := drain.Order{By: "ann@login1", At: noon, Reason: "new disks"}
	gpu := drain.Order{Queue: "gpu.a-1", By: "bob@login2", At: noon.Add(time.Hour)}
	for _, o := range []drain.Order{{By: "before"}, all, gpu} {
		if err := drain.In(l).Give(o); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]drain.Order{all, gpu}, read(t, l).List()); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
	for queue, want := range map[string]string{
		"cpu":     "its operators have drained it since 2026-11-28 12:00 UTC (new disks)",
		"gpu.a-1": "its operators have drained it since 2026-11-28 12:00 UTC (new disks)",
	} {
		if got := read(t, l).Words([]string{queue})[queue]; got != want {
			t.Errorf("queue %s: %q, want %q", queue, got, want)
		}
	}
	withdraw := func(queue string, want bool) {
		t.Helper()
		if given, err := drain.In(l).Withdraw(queue); err != nil || given != want {
			t.Errorf("withdraw %q: %t, %v; want %t", queue, given, err, want)
		}
	}
	withdraw("", true)
	withdraw("", false)
	withdraw("cpu", false)
	if diff := cmp.Diff(map[string]string{"gpu.a-1": "its operators have drained it since 2026-11-28 13:00 UTC"}, read(t, l).Words([]string{"cpu", "gpu.a-1"})); diff != "" {
		t.Errorf("an order for one queue (-want +got):\n%s", diff)
	}
}

// Somebody without cl-bridge at hand makes the file with an editor, or the disk was full while it was written.
func TestFileThatCannotBeReadDrainsAllTheSame(t *testing.T) {
	t.Parallel()
	l := mounted(t)
	dir := l.DrainDir()
	err := os.Mkdir(dir, 0o700)
	for name, content := range map[string]string{
		"bridge.json": "", "queue-cpu.json": `{"queue":"gpu"}`,
		"queue-.json": "{}", ".bridge.json.tmp-1": "{}", "notes": "", "queue-x": "",
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	want := []drain.Order{{Reason: "the order cannot be read"}, {Queue: "cpu"}}
	if diff := cmp.Diff(want, read(t, l).List()); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
}

// The empty mount point of a disk that is away has no orders, and a bridge must not take that for their end.
func TestDiskThatIsNotMountedSaysNothingAboutOrders(t *testing.T) {
	t.Parallel()
	l := spool.Layout(t.TempDir())
	dir := drain.In(l)
	_, readErr := dir.Read(true)
	_, withdrawErr := dir.Withdraw("")
	for what, err := range map[string]error{"read": readErr, "withdraw": withdrawErr, "give": dir.Give(drain.Order{})} {
		if err == nil || !strings.Contains(err.Error(), "is not mounted") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if entries, err := os.ReadDir(string(l)); err != nil || len(entries) > 0 {
		t.Errorf("the mount point has %v, %v", entries, err)
	}
	if _, err := os.Stat(l.DrainDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Error("an order was written to the mount point")
	}
}

func TestOrderNamesItsOperatorWithoutSteeringATerminal(t *testing.T) {
	t.Parallel()
	o := drain.Order{By: "ann@login1", At: noon, Reason: "new\x1b[2J disks.\nSoon."}
	if got := o.String(); !strings.HasPrefix(got, "by ann@login1 since ") || !strings.HasSuffix(got, `: new\u001b[2J disks. Soon`) {
		t.Errorf("for operators: %q", got)
	}
	if got := o.Words(); strings.Contains(got, "ann") || strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("for researchers: %q", got)
	}
	if got := (drain.Order{}).String(); got != "by an unknown operator" {
		t.Errorf("an order without words: %q", got)
	}
}

func TestBridgeFollowsWhenEachQueueOfTheOrderShowsIt(t *testing.T) {
	t.Parallel()
	queues := []string{"cpu", "gpu"}
	all, gpu := drain.Orders{"": {}}, drain.Orders{"gpu": {Queue: "gpu"}}
	shows := func(queues ...string) map[string]string {
		shown := map[string]string{}
		for _, q := range queues {
			shown[q] = "drained"
		}
		return shown
	}
	for _, c := range []struct {
		name   string
		shown  map[string]string
		orders drain.Orders
		queue  string
		drain  bool
		want   bool
	}{
		{"nothing yet", shows(), all, "", true, false},
		{"one of two", shows("gpu"), all, "", true, false},
		{"both", shows("cpu", "gpu"), all, "", true, true},
		{"the queue", shows("gpu"), gpu, "gpu", true, true},
		{"another queue", shows("cpu"), gpu, "gpu", true, false},
		{"resumed", shows(), drain.Orders{}, "", false, true},
		{"not resumed yet", shows("cpu"), drain.Orders{}, "", false, false},
		{"resumed but for one queue", shows("gpu"), gpu, "", false, true},
		{"a queue of a drained bridge", shows("cpu", "gpu"), all, "gpu", false, true},
	} {
		if got := drain.Followed(c.shown, c.orders, c.queue, queues, c.drain); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
