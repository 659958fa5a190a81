package spotnotice_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/spotnotice"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// service is a metadata service with the documented rules. Its sessions end after three questions.
type service struct {
	sessions, questions atomic.Int64
	old                 bool // it knows no sessions
	notice              func(question int64) string
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "PUT /latest/api/token":
		if s.old || r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "" {
			http.Error(w, "", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte{byte('a' + s.sessions.Add(1))})
	case "GET /latest/meta-data/spot/instance-action":
		n := s.questions.Add(1)
		text := s.notice(n)
		switch {
		case !s.old && (r.Header.Get("X-aws-ec2-metadata-token") != string([]byte{byte('a' + s.sessions.Load())}) || n == 3):
			http.Error(w, "", http.StatusUnauthorized)
		case text == "":
			http.NotFound(w, r)
		default:
			_, _ = w.Write([]byte(text))
		}
	default:
		http.NotFound(w, r)
	}
}

func await(t *testing.T, s *service) (spotnotice.Notice, error) {
	t.Helper()
	web := httptest.NewServer(s)
	defer web.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	return spotnotice.Watch{Address: web.URL, Every: time.Millisecond}.Await(ctx)
}

func TestNoticeIsAwaitedAcrossSessions(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 27, 22, 0, 0, 0, time.UTC)
	for _, old := range []bool{false, true} {
		s := &service{old: old, notice: func(n int64) string {
			switch {
			case n < 6:
				return ""
			case n == 6:
				return "<html>"
			}
			return `{"action": "terminate", "time": "2026-11-27T22:00:00Z"}`
		}}
		got, err := await(t, s)
		if err != nil || got.Action != "terminate" || !got.Time.Equal(at) {
			t.Errorf("the notice is %+v, %v", got, err)
		}
		if n := s.sessions.Load(); !old && n != 2 || old && n != 0 {
			t.Errorf("%d sessions were made", n)
		}
	}
}

func TestWatchOfAServiceThatIsNotThereEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if got, err := (spotnotice.Watch{Address: "http://127.0.0.1:1", Every: time.Millisecond}).Await(ctx); err == nil {
		t.Errorf("the notice is %+v", got)
	}
}
