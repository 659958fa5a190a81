// Package drain keeps an operator's order that a bridge takes no new bundles.
//
// A drained bridge, or a drained queue of it, claims no bundle. It goes on with those that it has: they run, and
// their results are collected and delivered.
//
// An order is a file of the shared directory, because the operator may work on another host than the bridge:
//
//	drain/bridge.json       the whole bridge
//	drain/queue-NAME.json   one queue
//
// The file is the order: while it exists, its queue is drained, whatever the file holds. A bridge reads the directory
// before its first check-in, and then every second. So an order holds whether a bridge runs or not, and survives the
// end of a bridge, of its host and of the command that gave it. Each order has a file of its own, so that two
// orders that are given at the same time do not undo each other.
package drain

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Order is an order to take no new bundles.
type Order struct {
	// Queue is the drained queue; empty for the whole bridge.
	Queue string `json:"queue,omitempty"`
	// By is the operator, as LOGIN@HOST; empty if the file does not say.
	By string `json:"by,omitempty"`
	// At is the time of the order, by the clock of the operator's host.
	At time.Time `json:"at,omitzero"`
	// Reason is the operator's reason; empty for none.
	Reason string `json:"reason,omitempty"`
}

// String names the operator, the time and the reason of the order, for behind "is drained".
func (o Order) String() string {
	said := "by " + cmp.Or(o.By, "an unknown operator")
	if !o.At.IsZero() {
		said += " since " + termtext.Clock(o.At)
	}
	if o.Reason != "" {
		said += ": " + strings.TrimRight(o.Reason, ". ")
	}
	return termtext.Line(said)
}

// Words says to researchers why a queue takes no new bundles, for behind a colon. It leaves the operator's login out.
func (o Order) Words() string {
	said := "its operators have drained it"
	if !o.At.IsZero() {
		said += " since " + o.At.UTC().Format("2006-01-02 15:04 UTC")
	}
	if o.Reason != "" {
		said += " (" + strings.TrimRight(termtext.Line(o.Reason), ". ") + ")"
	}
	return said
}

// Orders are the orders of a bridge, by queue. That of the whole bridge has the empty name.
type Orders map[string]Order

// Of returns the order that drains a queue. That of the whole bridge comes first.
func (o Orders) Of(queue string) (Order, bool) {
	if all, ok := o[""]; ok {
		return all, true
	}
	one, ok := o[queue]
	return one, ok
}

// Words returns the reason of each of these queues that is drained.
func (o Orders) Words(queues []string) map[string]string {
	words := map[string]string{}
	for _, queue := range queues {
		if order, ok := o.Of(queue); ok {
			words[queue] = order.Words()
		}
	}
	return words
}

// List returns the orders, that of the whole bridge first.
func (o Orders) List() []Order {
	var list []Order
	for _, queue := range slices.Sorted(maps.Keys(o)) {
		list = append(list, o[queue])
	}
	return list
}

// Dir is the directory of the orders in a bridge's shared directory.
type Dir struct {
	path string
	// witness is a directory that is missing if the shared disk is not mounted.
	witness string
}

// In returns the directory of the orders of a shared directory.
func In(shared spool.Layout) Dir { return Dir{path: shared.DrainDir(), witness: shared.Runs()} }

const ofBridge, ofQueue, suffix = "bridge", "queue-", ".json"

func (d Dir) file(queue string) string {
	name := ofBridge
	if queue != "" {
		name = ofQueue + queue
	}
	return filepath.Join(d.path, name+suffix)
}

// mounted fails if the shared disk is not mounted, or no bridge has ever used it. Its mount point has no orders then.
func (d Dir) mounted() error {
	_, err := os.Stat(d.witness)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing: the shared disk is not mounted, or no bridge has used it yet", d.witness)
	}
	return err
}

// queueOf returns the queue that a file of this name drains; false for a file of another kind, such as a temporary one.
func queueOf(name string) (queue string, ok bool) {
	name, ok = strings.CutSuffix(name, suffix)
	if !ok || name == ofBridge {
		return "", ok
	}
	queue, ok = strings.CutPrefix(name, ofQueue)
	return queue, ok && queue != ""
}

// Give gives an order, in the place of an earlier one for the same queue. When it returns, the order is on the disk.
func (d Dir) Give(o Order) error {
	err := d.mounted()
	if err == nil {
		if err = os.Mkdir(d.path, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err == nil {
		err = atomicfile.WriteJSON(d.file(o.Queue), o)
	}
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}

// Withdraw withdraws the order for a queue, or for the whole bridge if the name is empty. given is false if there is
// none.
func (d Dir) Withdraw(queue string) (given bool, err error) {
	if err = d.mounted(); err == nil {
		err = os.Remove(d.file(queue))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
	}
	if err == nil {
		err = atomicfile.SyncDir(d.path)
	}
	if err != nil {
		return false, fmt.Errorf("resume: %w", err)
	}
	return true, nil
}

// Read returns the orders. With fresh it changes the directory first: then an NFS
// client asks the server for the names in it, which it may have remembered for a minute.
//
// A file that cannot be decoded is an order without further words. An error means that the orders are not known.
func (d Dir) Read(fresh bool) (Orders, error) {
	if fresh {
		if probe, err := atomicfile.Temporary(filepath.Join(d.path, "look"), nil, 0o600); err == nil {
			_ = os.Remove(probe) // a leftover is no order
		}
	}
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = d.mounted() // nobody has ever given an order
	}
	if err != nil {
		return nil, fmt.Errorf("read orders to drain: %w", err)
	}
	orders := Orders{}
	for _, e := range entries {
		queue, ok := queueOf(e.Name())
		if !ok {
			continue
		}
		var o Order
		if err := atomicfile.ReadJSON(d.file(queue), &o); errors.Is(err, fs.ErrNotExist) {
			continue // it was withdrawn since
		} else if err != nil {
			o = Order{Reason: "the order cannot be read"}
		}
		o.Queue = queue
		orders[queue] = o
	}
	return orders, nil
}
