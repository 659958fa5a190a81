package testenv

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// fatality is a test that records its end.
type fatality struct {
	testing.TB
	said string
}

func (*fatality) Helper() {}

func (f *fatality) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// fatal returns what ends the test that f is given.
func fatal(t *testing.T, f func(tb testing.TB)) string {
	t.Helper()
	tb, ended := &fatality{TB: t}, make(chan struct{})
	go func() {
		defer close(ended)
		f(tb)
	}()
	<-ended
	return tb.said
}

func TestAwaitEndsWithTheEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, happens := time.Now(), time.Now().Add(WaitLimit-time.Second)
		Await(t, "the event", func() bool { return !time.Now().Before(happens) })
		if took := time.Since(began); took >= WaitLimit {
			t.Errorf("it took %s", took)
		}
		c := make(chan int, 1)
		time.AfterFunc(WaitLimit-time.Second, func() { c <- 7 })
		if got := Receive(t, "a number", c); got != 7 {
			t.Errorf("received %d", got)
		}
	})
}

func TestAwaitThatFailsSaysWhatItWaitedForAndWhatItSaw(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks, text := 0, []byte("none")
		said := fatal(t, func(tb testing.TB) {
			tb.Helper()
			Await(tb, "a job", func() bool { looks++; text = []byte("pending"); return false }, &text, func() string { return "of ann" })
		})
		if want := "not within 10m0s: a job; pending; of ann"; said != want {
			t.Errorf("Await says %q, want %q", said, want)
		}
		if looks > int(WaitLimit/pollMost)+100 {
			t.Errorf("%d looks: the pauses do not grow", looks)
		}
		said = fatal(t, func(tb testing.TB) {
			tb.Helper()
			Receive(tb, "an answer", make(chan int))
		})
		if want := "not within 10m0s: an answer"; said != want {
			t.Errorf("Receive says %q, want %q", said, want)
		}
	})
}

func TestPollRestsAfterLongLooks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ look, all time.Duration }{
		"a program":      {look: 100 * time.Millisecond, all: 10 * time.Second},
		"a long program": {look: 30 * time.Second, all: 10 * (30*time.Second + pollLongest)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, looks := time.Now(), 0
				if !Poll(func() bool { time.Sleep(tt.look); looks++; return looks == 11 }) {
					t.Fatal("it gave up")
				}
				if took := time.Since(began); took != tt.all+tt.look {
					t.Errorf("11 looks took %s, want %s", took, tt.all+tt.look)
				}
			})
		})
	}
}
