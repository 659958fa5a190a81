package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// Idle workers, as CodaLab's own (codalab/worker/worker.py: start, checkin).
const (
	idleWorkers      = 5000
	workersOfAccount = 100
	// checkInEvery is a worker's pause after each check-in (codalab/worker/main.py). checkInHold is the
	// time for which the server holds a check-in of a worker without a doorbell.
	checkInEvery = 5 * time.Second
	checkInHold  = 5 * time.Second
	// workersOfAddress is the number of workers at one address: a server gives one address about a
	// thousand doorbells.
	workersOfAddress = 1000
	// bellEvery is the interval of a worker's messages on its doorbell.
	bellEvery = 10 * time.Second
)

// accounts are the names of the users that have the workers.
func accounts() []string {
	var names []string
	for i := range idleWorkers / workersOfAccount {
		names = append(names, fmt.Sprint("lab", i))
	}
	return names
}

// fleet is idle workers of one server.
type fleet struct {
	address string
	workers []*idleWorker
}

// idleWorker is a worker without runs.
type idleWorker struct {
	name    string
	from    net.IP
	checkIn []byte
	bell    *websocket.Conn // nil if the server has no more of them: the worker then does without
}

// newFleet makes workers, with doorbells as far as the server has them.
func newFleet(ctx context.Context, address string, tokens map[string]string) *fleet {
	f := &fleet{address: address}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range idleWorkers {
		w := &idleWorker{name: fmt.Sprint("worker-", i), from: net.IPv4(127, 0, 0, byte(2+i/workersOfAddress))}
		body := must(json.Marshal(codalab.CheckIn{
			CPUs: 16, GPUs: 4, MemoryBytes: 256 << 30, FreeDiskBytes: 74959298560 + int64(i), Hostname: fmt.Sprint("node", i),
			Dependencies: [][2]string{}, Reports: []codalab.RunReport{}, ExitAfterNumRuns: codalab.UnlimitedRuns,
		}))
		// The lines that Python's urllib sends.
		w.checkIn = request(http.MethodPost, "/rest/workers/"+w.name+"/checkin", tokens[fmt.Sprint("lab", i/workersOfAccount)], body,
			"Accept-Encoding: identity", "X-Requested-With: XMLHttpRequest", "User-Agent: Python-urllib/3.11", "Connection: close")
		f.workers = append(f.workers, w)
		group.Go(func() error { return w.openBell(ctx, address) })
	}
	check(group.Wait())
	return f
}

// openBell opens the worker's doorbell, if the server has one more.
func (w *idleWorker) openBell(ctx context.Context, address string) error {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: w.from}}
	c, answer, err := websocket.Dial(
		ctx, strings.Replace(address, "http", "ws", 1)+"/ws/worker/"+w.name,
		&websocket.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{DialContext: from.DialContext}}})
	if answer != nil && answer.StatusCode == http.StatusServiceUnavailable {
		return nil
	}
	w.bell = c
	return err
}

// close closes all doorbells.
func (f *fleet) close() {
	for _, w := range f.workers {
		if w.bell != nil {
			_ = w.bell.CloseNow() // the server may have closed it
			w.bell = nil
		}
	}
}

// call checks in once, on a connection of its own as CodaLab's worker does.
func (w *idleWorker) call(ctx context.Context, address string) error {
	c, err := dial(ctx, address, w.from)
	if err != nil {
		return err
	}
	return errors.Join(c.call(w.checkIn), c.Close())
}

// startCheckIns makes all workers check in, until the caller calls stop. late gets the duration of each check-in,
// without the time for which the server holds it.
func (f *fleet) startCheckIns(ctx context.Context, late *samples) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	for i, w := range f.workers {
		part := float64(i) / idleWorkers // of a pause: not all workers begin at once
		group.Go(func() error { return w.checkInRepeatedly(ctx, f.address, portion(part, checkInEvery), late) })
		if w.bell != nil {
			group.Go(func() error { return w.listen(ctx, portion(part, bellEvery)) })
		}
	}
	return func() {
		cancel()
		check(group.Wait())
	}
}

func portion(part float64, of time.Duration) time.Duration {
	return time.Duration(part * float64(of))
}

// checkInRepeatedly checks in all the time, with pauses.
func (w *idleWorker) checkInRepeatedly(ctx context.Context, address string, first time.Duration, late *samples) error {
	for next := first; pause.For(ctx, next) == nil; next = checkInEvery {
		began := time.Now()
		// A held check-in is completed when the work ends.
		if err := w.call(context.WithoutCancel(ctx), address); err != nil {
			return fmt.Errorf("check in: %w", err)
		}
		took := time.Since(began)
		if w.bell == nil {
			took -= checkInHold
		}
		late.add(took)
	}
	return nil
}

// listen writes to a worker's doorbell at intervals; the server does not ring an idle worker's doorbell.
func (w *idleWorker) listen(ctx context.Context, first time.Duration) error {
	for next := first; pause.For(ctx, next) == nil; next = bellEvery {
		if err := w.bell.Write(ctx, websocket.MessageText, []byte("a")); err != nil && ctx.Err() == nil {
			return fmt.Errorf("write to a doorbell: %w", err)
		}
	}
	return nil
}

// most returns the number of check-ins that the server answers in a second. It uses workers with
// doorbells, whose check-ins the server does not hold.
func (f *fleet) most(ctx context.Context) float64 {
	var with []*idleWorker
	for _, w := range f.workers {
		if w.bell != nil {
			with = append(with, w)
		}
	}
	return perSecond(func(client, i int) error { return with[(client+i*atOnce)%len(with)].call(ctx, f.address) })
}

// holdAll makes all workers, whose doorbells have ended, check in at once, and returns the number of
// check-ins that the server held.
func (f *fleet) holdAll(ctx context.Context) int {
	var held atomic.Int64
	var group, dialing errgroup.Group
	dialing.SetLimit(atOnce)
	began := time.Now()
	for _, w := range f.workers {
		dialing.Go(func() error {
			c, err := dial(ctx, f.address, w.from)
			if err != nil {
				return err
			}
			group.Go(func() error {
				defer c.Close()
				began := time.Now()
				err := c.call(w.checkIn)
				if err == nil && time.Since(began) >= checkInHold {
					held.Add(1)
				}
				return err
			})
			return nil
		})
	}
	check(dialing.Wait())
	if time.Since(began) > checkInHold {
		check(errors.New("hold check-ins: this program was too slow to send all at once"))
	}
	check(group.Wait())
	return int(held.Load())
}
