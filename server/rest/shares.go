package rest

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// Shares bound what the requests of one owner hold of the server at a time: their number, and the bytes of their bodies
// in memory. A request holds its body while it waits for its owner's turn, so that without a bound a thousand requests
// would hold a thousand bodies. Streams, such as contents, are not in memory and do not count.
type Shares struct {
	// MaxRequests is the number of requests of one owner; 0 means no bound.
	MaxRequests int
	// MaxBytes is the bytes of all bodies in memory, and MaxBytesOfOwner those of one owner.
	MaxBytes, MaxBytesOfOwner int64

	mu        sync.Mutex
	bytes     int64
	owners    map[string]*share
	strangers int64 // bytes
}

// Owner is a user, or a network of people without a login.
type Owner struct {
	Name string
	// Stranger is set for people without a login, who may have many networks: together they have the bytes of one owner.
	Stranger bool
}

// share counts the requests of one owner, and the bytes of their bodies.
type share struct {
	requests int
	bytes    int64
}

// laterAfter is the time after which a client may repeat a request that was too much.
const laterAfter = 5 * time.Second

// later refuses a request that may be repeated. The status is 503 also if only the owner's share is used up: CodaLab's worker
// repeats the upload of a run's results after that, and not after 429 (codalab/worker/bundle_service_client.py).
func later(message string) error {
	return &RefusalError{Status: http.StatusServiceUnavailable, Message: message, RetryAfter: laterAfter}
}

// Enter counts a request of an owner until leave is called. ReadBody counts the body of a request that has the returned
// context. Enter refuses a request that is more than the owner's share.
func (s *Shares) Enter(ctx context.Context, owner Owner) (entered context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.owners[owner.Name]
	if held == nil {
		held = &share{}
	}
	if s.MaxRequests > 0 && held.requests >= s.MaxRequests {
		return ctx, func() {}, later("You have as many requests under way as one user may have. Try again later.")
	}
	if s.owners == nil {
		s.owners = map[string]*share{}
	}
	s.owners[owner.Name] = held
	held.requests++
	one := &heldBody{shares: s, of: held, stranger: owner.Stranger}
	return context.WithValue(ctx, heldBodyKey{}, one), func() { one.leave(owner.Name) }, nil
}

// heldBody counts the bytes of one request's body in its owner's share.
type heldBody struct {
	shares *Shares
	of     *share
	bytes  int64
	// stranger is set if the bytes count among those of all strangers, too.
	stranger bool
	read     bool // ReadBody has begun: a handler may read the same bytes once more
}

type heldBodyKey struct{}

// take counts n more bytes.
func (h *heldBody) take(n int64) error {
	s := h.shares
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case h.of.bytes+n > s.MaxBytesOfOwner:
		return later("Your requests under way are as large as those of one user may be. Try again later.")
	case s.bytes+n > s.MaxBytes, h.stranger && s.strangers+n > s.MaxBytesOfOwner:
		return later("The server has as many large requests as it can hold. Try again later.")
	}
	h.bytes += n
	h.of.bytes += n
	s.bytes += n
	if h.stranger {
		s.strangers += n
	}
	return nil
}

func (h *heldBody) leave(owner string) {
	s := h.shares
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= h.bytes
	if h.stranger {
		s.strangers -= h.bytes
	}
	h.of.bytes -= h.bytes
	if h.of.requests--; h.of.requests == 0 {
		delete(s.owners, owner)
	}
}

// counted returns a reader of a body whose bytes count in its owner's share.
func counted(r *http.Request, body io.Reader) io.Reader {
	one, ok := r.Context().Value(heldBodyKey{}).(*heldBody)
	if !ok || one.read {
		return body
	}
	one.read = true
	return countedBody{body, one}
}

type countedBody struct {
	io.Reader
	of *heldBody
}

// Read fails with a RefusalError if the owner's share is used up.
func (c countedBody) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if no := c.of.take(int64(n)); no != nil {
		return n, no
	}
	return n, err
}
