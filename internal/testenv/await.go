package testenv

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// WaitLimit is the longest that a test waits for an event, such as the start of a job or the end of a
// process. It is generous, because a dozen other tests may share a machine that is ten times slower,
// and what they wait for has pauses of its own, of up to minutes: only a test that fails waits so long.
const WaitLimit = 10 * time.Minute

// The pauses between two calls of a condition grow from pollFirst to pollMost. After a call that took long, such as
// one that runs a program, the pause is pollShare as long, up to pollLongest: a dozen tests that wait must not keep the
// machine busy, least of all a slow one.
const (
	pollFirst   = 2 * time.Millisecond
	pollMost    = 50 * time.Millisecond
	pollShare   = 9
	pollLongest = 2 * time.Second
)

// Must ends the test unless err is nil.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Await calls holds until it returns true. After WaitLimit it ends the test, and prints what it waited
// for and the last values. Of a pointer among these it prints the value that it points to then; a
// func() string is called then. Only the goroutine of the test may call it.
func Await(tb testing.TB, what string, holds func() bool, last ...any) {
	tb.Helper()
	if !Poll(holds) {
		tb.Fatalf("not within %s: %s%s", WaitLimit, what, describe(last))
	}
}

// AwaitFile waits until there is a file, as Await does.
func AwaitFile(tb testing.TB, path string) {
	tb.Helper()
	Await(tb, path+" is there", func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// Poll calls holds until it returns true, and reports whether it did within WaitLimit.
func Poll(holds func() bool) bool {
	end := time.Now().Add(WaitLimit)
	for pause := pollFirst; ; pause = min(2*pause, pollMost) {
		began := time.Now()
		if holds() {
			return true
		}
		now := time.Now()
		if now.After(end) {
			return false
		}
		time.Sleep(max(pause, min(pollShare*now.Sub(began), pollLongest)))
	}
}

// Receive returns the next value of a channel, or the zero value when the channel is closed. After
// WaitLimit it ends the test, as Await does.
func Receive[T any](tb testing.TB, what string, c <-chan T, last ...any) T {
	tb.Helper()
	late := time.NewTimer(WaitLimit)
	defer late.Stop()
	select {
	case value := <-c:
		return value
	case <-late.C:
		tb.Fatalf("not within %s: %s%s", WaitLimit, what, describe(last))
		panic("not reached")
	}
}

// describe returns the values of the last look at what a test waits for.
func describe(last []any) string {
	var text strings.Builder
	for _, value := range last {
		if f, ok := value.(func() string); ok {
			value = f()
		}
		if v := reflect.ValueOf(value); v.Kind() == reflect.Pointer && !v.IsNil() {
			value = v.Elem().Interface()
		}
		if b, ok := value.([]byte); ok {
			value = string(b)
		}
		fmt.Fprintf(&text, "; %+v", value)
	}
	return text.String()
}
