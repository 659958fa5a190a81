package hub

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestAskEndsWhenTheWorkerCannotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := New(time.Minute, time.Now())
		track(h, run("0x1", codalab.StateRunning))
		if err := <-ask(t.Context(), h, "0xother", codalab.MessageRead); !errors.Is(err, ErrMoved) {
			t.Errorf("a bundle that no worker has: %v", err)
		}
		checkIn(t, h, codalab.CheckIn{}, time.Now()).End()
		begun := time.Now()
		if err := <-ask(t.Context(), h, "0x1", codalab.MessageRead); !errors.Is(err, ErrAway) || time.Since(begun) != AwayAfter {
			t.Errorf("a worker that does not check in: %v after %s", err, time.Since(begun))
		}
		over := ask(t.Context(), h, "0x1", codalab.MessageRead)
		begun = time.Now()
		synctest.Wait()
		c := checkIn(t, h, codalab.CheckIn{}, time.Now().Add(1))
		if _, messages := c.Due(time.Now()); len(messages) != 1 {
			t.Errorf("%d messages are due", len(messages))
		}
		if err := <-over; !errors.Is(err, ErrSlow) || time.Since(begun) != ReplyTimeout {
			t.Errorf("a worker that does not reply: %v after %s", err, time.Since(begun))
		}
		over = ask(t.Context(), h, "0x1", codalab.MessageRead)
		synctest.Wait()
		track(h, run("0x1", codalab.StateReady))
		if err := <-over; !errors.Is(err, ErrMoved) {
			t.Errorf("a bundle that ends: %v", err)
		}
		if n := len(c.worker.requests); n != 0 {
			t.Errorf("%d requests are left", n)
		}
		time.Sleep(2 * time.Minute)
		if err := <-ask(t.Context(), h, "0x1", codalab.MessageRead); !errors.Is(err, ErrAway) {
			t.Errorf("a worker that has gone: %v", err)
		}
	})
}

func TestReadsAreRepeatedAndTalksAreNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := New(time.Minute, time.Now())
		track(h, run("0x1", codalab.StateRunning))
		c := checkIn(t, h, codalab.CheckIn{}, time.Now())
		ctx, stop := context.WithCancel(t.Context())
		read, talk := ask(ctx, h, "0x1", codalab.MessageRead), ask(ctx, h, "0x1", codalab.MessageNetcat)
		synctest.Wait()
		now := time.Now()
		for after, want := range []int{2, 0, 1} {
			_, due := c.Due(now.Add(time.Duration(after) * 9 * time.Second))
			if len(due) != want {
				t.Errorf("after %d s: %v", 9*after, due)
			}
			for _, m := range due {
				if want == 1 {
					h.TakeRequest(key, m.SocketID).Reply(Reply{ReadReply: codalab.ReadReply{ErrorCode: 404, ErrorMessage: "none"}})
				}
			}
		}
		var no *RefusedError
		if err := <-read; !errors.As(err, &no) || no.Code != 404 {
			t.Errorf("%v", err)
		}
		stop()
		if err := <-talk; !errors.Is(err, context.Canceled) || len(c.worker.requests) != 0 {
			t.Errorf("%v, %d requests are left", err, len(c.worker.requests))
		}
	})
}

// A worker may reply late to a request of the server before a restart. The reply must not pass for that to
// another request, whose user may not read the other file.
func TestReplyToARequestBeforeARestartIsNotTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ids []int64
		for range 2 {
			h := New(time.Minute, time.Now())
			track(h, run("0x1", codalab.StateRunning))
			c := checkIn(t, h, codalab.CheckIn{}, time.Now())
			ctx, stop := context.WithCancel(t.Context())
			over := ask(ctx, h, "0x1", codalab.MessageRead)
			synctest.Wait()
			_, messages := c.Due(time.Now())
			for _, id := range ids {
				if h.TakeRequest(key, id) != nil {
					t.Errorf("a reply to request %d of the earlier hub is taken for one to request %d", id, messages[0].SocketID)
				}
			}
			ids = append(ids, messages[0].SocketID)
			time.Sleep(time.Second)
			stop()
			if err := <-over; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

func TestOneWorkerHasABoundedNumberOfReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := New(time.Minute, time.Now())
		track(h, run("0x1", codalab.StateRunning))
		ctx, stop := context.WithCancel(t.Context())
		var all []<-chan error
		for range MostRequests {
			all = append(all, ask(ctx, h, "0x1", codalab.MessageRead))
		}
		synctest.Wait()
		if err := <-ask(ctx, h, "0x1", codalab.MessageRead); !errors.Is(err, ErrBusy) {
			t.Errorf("one more: %v", err)
		}
		stop()
		for _, over := range all {
			if err := <-over; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

func TestWriteIsSentOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, m := New(time.Minute, time.Now()), codalab.Message{Type: codalab.MessageWrite, UUID: "0x1"}
		if err := h.Tell(t.Context(), key, m, time.Now); !errors.Is(err, ErrMoved) {
			t.Errorf("a bundle that no worker has: %v", err)
		}
		track(h, run("0x1", codalab.StateRunning))
		if err := h.Tell(t.Context(), key, m, time.Now); !errors.Is(err, ErrAway) {
			t.Errorf("a worker that does not check in: %v", err)
		}
		over := make(chan error, 1)
		go func() { over <- h.Tell(t.Context(), key, m, time.Now) }()
		synctest.Wait()
		c := checkIn(t, h, codalab.CheckIn{}, time.Now())
		for _, want := range []int{1, 0} {
			if _, due := c.Due(time.Now()); len(due) != want {
				t.Errorf("%d writes, want %d", len(due), want)
			}
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

// rung returns the number of rings that have not been sent, which is 0 or 1.
func rung(b *Bell) int { return len(b.rung) }
