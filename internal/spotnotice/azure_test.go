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

// The events are of all machines of the scale set; only one of this machine's counts.
func TestAzuresNoticeIsThatOfThisMachine(t *testing.T) {
	t.Parallel()
	answers := []string{
		"", // the service is not there yet
		`{"DocumentIncarnation":1,"Events":[]}`,
		`<html>`,
		`{"DocumentIncarnation":2,"Events":[{"EventId":"A","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["pool_1"],"EventStatus":"Scheduled","NotBefore":"Fri, 27 Nov 2026 21:00:00 GMT"}]}`,
		`{"DocumentIncarnation":3,"Events":[{"EventId":"B","EventType":"Freeze","Resources":["pool_0"],"NotBefore":"Fri, 27 Nov 2026 21:00:00 GMT"}]}`,
		`{"DocumentIncarnation":4,"Events":[{"EventId":"B","EventType":"Freeze","Resources":["pool_0"]},{"EventId":"C","EventType":"Preempt","Resources":["pool_1","pool_0"],"NotBefore":"Fri, 27 Nov 2026 22:00:00 GMT"}]}`,
	}
	var questions atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Metadata") != "true" || r.URL.Query().Get("api-version") == "":
			http.Error(w, "", http.StatusBadRequest)
		case r.URL.Path == "/metadata/instance/compute/name":
			_, _ = w.Write([]byte("pool_0"))
		case r.URL.Path == "/metadata/scheduledevents":
			answer := answers[min(int(questions.Add(1))-1, len(answers)-1)]
			if answer == "" {
				http.Error(w, "", http.StatusServiceUnavailable)
				return
			}
			_, _ = w.Write([]byte(answer))
		default:
			http.NotFound(w, r)
		}
	}))
	defer web.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	got, err := spotnotice.Azure{Address: web.URL, Every: time.Millisecond}.Await(ctx)
	if want := time.Date(2026, 11, 27, 22, 0, 0, 0, time.UTC); err != nil || got.Action != "preempt" || !got.Time.Equal(want) {
		t.Errorf("the notice is %+v, %v", got, err)
	}
	if n := questions.Load(); n != int64(len(answers)) {
		t.Errorf("it came after %d questions, want %d", n, len(answers))
	}
}
