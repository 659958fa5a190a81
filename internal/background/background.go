// Package background starts goroutines. The caller of Go waits for its goroutine, and the caller of Detach
// does not.
//
// Other packages start goroutines with it, with a sync.WaitGroup or with an errgroup, and have no go
// statement: "make lint" refuses one.
package background

import "context"

// Go calls f in a goroutine. The channel that it returns is closed when f has returned; the caller
// waits for that.
func Go(f func()) (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// Detach calls f in a goroutine without a waiter. A comment at the call names the event that ends f.
func Detach(f func()) { Go(f) }

// Call returns the results of f, or ctx's error when ctx ends before f has returned. f is not
// interrupted: it goes on in its goroutine until it returns, and its results are lost.
func Call[T any](ctx context.Context, f func() (T, error)) (T, error) {
	var result T
	var err error
	ended := Go(func() { result, err = f() })
	select {
	case <-ended:
		return result, err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
