package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
)

// TestWaitingRequestsOfOneUserLeaveRoomForOthers holds requests of alice whose bodies have come but for their ends.
func TestWaitingRequestsOfOneUserLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	const each = 16 << 10
	s := newSite(t, func(c *server.Config) { c.MaxBodyMemory = 8 * each })
	read, end := make(chan struct{}), make(chan struct{})
	held := make(chan answer, 2)
	for range 2 {
		body := io.MultiReader(strings.NewReader(strings.Repeat(" ", each)), atEnd(func() {
			read <- struct{}{}
			<-end
		}))
		go func() { held <- s.send(s.request("alice", http.MethodPost, "/worksheets", body)) }()
	}
	for range 2 {
		testenv.Receive(t, "a body of alice has come", read)
	}
	sheet := func(user string) answer {
		return s.call(user, http.MethodPost, "/worksheets", object("worksheets", map[string]string{"name": "of-" + user}))
	}
	if a := sheet("alice"); a.header.Get("Retry-After") == "" {
		t.Errorf("alice's third request: %d %v", a.status, a.header)
	} else {
		a.says(http.StatusServiceUnavailable, "Your requests under way are as large as those of one user may be")
	}
	sheet("bob").ok()
	s.get("alice", "/user").ok()
	close(end)
	for range 2 {
		(<-held).says(http.StatusBadRequest, "Invalid JSON")
	}
	sheet("alice").ok()
}
