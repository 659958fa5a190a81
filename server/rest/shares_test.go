package rest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// reads enters a request of an owner with a body of so many bytes, and reads that.
func reads(t *testing.T, s *Shares, owner string, bytes int) (leave func(), err error) {
	t.Helper()
	ctx, leave, err := s.Enter(t.Context(), Owner{Name: owner, Stranger: strings.HasPrefix(owner, "network ")})
	if err == nil {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(strings.Repeat("x", bytes)))
		var body []byte
		if body, err = ReadBody(httptest.NewRecorder(), r); err == nil && len(body) != bytes {
			t.Errorf("%d bytes were read of %d", len(body), bytes)
		}
	}
	return leave, err
}

// refused checks that a request was refused so that CodaLab's worker repeats it, and that its client is told when.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	w := httptest.NewRecorder()
	AnswerError(nil, w, httptest.NewRequest(http.MethodPost, "/", nil), err)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" {
		t.Errorf("%s: %d, %q, %v", what, w.Code, w.Body, w.Header())
	}
}

// A request holds its body while it waits for its user's turn. A thousand requests of one user held 8 GB.
func TestBodiesOfOneUserInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	s := &Shares{MaxBytes: 250, MaxBytesOfOwner: 100}
	var alices []func()
	for range 4 {
		leave, err := reads(t, s, "alice", 25)
		if err != nil {
			t.Fatal(err)
		}
		alices = append(alices, leave)
	}
	leave, err := reads(t, s, "alice", 1)
	refused(t, "alice's fifth", err)
	leave() // as after every request
	bobs, err := reads(t, s, "bob", 100)
	if err != nil {
		t.Errorf("bob: %v", err)
	}
	carols, err := reads(t, s, "carol", 51)
	refused(t, "carol's", err)
	carols()
	alices[0]()
	if leave, err = reads(t, s, "alice", 25); err != nil {
		t.Errorf("alice, after the end of one: %v", err)
	}
	for _, leave := range append(alices[1:], leave, bobs) {
		leave()
	}
	if s.bytes != 0 || len(s.owners) != 0 {
		t.Errorf("after all requests: %d bytes, %d owners", s.bytes, len(s.owners))
	}
}

func TestRequestsOfOneUserAtATimeAreBounded(t *testing.T) {
	t.Parallel()
	s := &Shares{MaxRequests: 2, MaxBytes: 1, MaxBytesOfOwner: 1}
	var leaves []func()
	for range 2 {
		leave, err := reads(t, s, "alice", 0)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	leave, err := reads(t, s, "alice", 0)
	refused(t, "alice's third", err)
	leave()
	if _, err := reads(t, s, "bob", 0); err != nil {
		t.Errorf("bob: %v", err)
	}
	leaves[0]()
	if _, err := reads(t, s, "alice", 0); err != nil {
		t.Errorf("alice, after the end of one: %v", err)
	}
}

// Whoever has many networks and no login must not hold the memory of all.
func TestBodiesOfStrangersInMemoryAreBoundedTogether(t *testing.T) {
	t.Parallel()
	s := &Shares{MaxBytes: 400, MaxBytesOfOwner: 100}
	first, err := reads(t, s, "network 1", 90)
	if err != nil {
		t.Fatal(err)
	}
	second, err := reads(t, s, "network 2", 11)
	refused(t, "the second network's", err)
	second()
	if alices, err := reads(t, s, "alice", 100); err != nil {
		t.Errorf("alice: %v", err)
	} else {
		alices()
	}
	first()
	if second, err = reads(t, s, "network 2", 100); err != nil {
		t.Errorf("the second network, alone: %v", err)
	}
	second()
	if s.bytes != 0 || s.strangers != 0 {
		t.Errorf("%d bytes are held, %d of strangers", s.bytes, s.strangers)
	}
}
