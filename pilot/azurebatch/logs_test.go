package azurebatch_test

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
)

func TestLogIsReadFromTheNodeAndThenFromTheContainer(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	p := s.start(t)
	if _, err := s.log(t, p); !errors.Is(err, pilot.ErrNoLog) {
		t.Errorf("%v, want ErrNoLog", err)
	}
	s.Print(p.Name, "stderr.txt", "one\n")
	if got, err := s.log(t, p); got != "one\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	s.Print(p.Name, "stderr.txt", "two\n")
	s.Finish(p.Name, 0)
	if got, err := s.log(t, p); got != "one\ntwo\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got := s.logs.Blob(p.Name + "/stderr.txt"); string(got) != "one\ntwo\n" {
		t.Errorf("the blob has %q", got)
	}
	s.RemoveNodes()
	if got, err := s.log(t, p); got != "one\ntwo\n" || err != nil {
		t.Errorf("without the node: %q, %v", got, err)
	}
	s.logs.Permit("cw")
	if _, err := s.log(t, p); err == nil || !strings.Contains(err.Error(), "needs the permissions read, create and write") || strings.Contains(err.Error(), s.logs.Signature) {
		t.Errorf("%v", err)
	}
	s.Shape.LogContainer = ""
	if _, err := s.log(t, p); !errors.Is(err, pilot.ErrNoLog) || !strings.Contains(err.Error(), "its node is gone, and there is no --log-container-url") {
		t.Errorf("%v", err)
	}
}

func TestEndOfTheSignatureIsToldInTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	var log strings.Builder
	s.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s.start(t)
	if log.String() != "" {
		t.Errorf("years before: %s", log.String())
	}
	s.Shape.LogContainer = strings.Replace(s.logs.URL, "se=2036-01-01T00%3A00%3A00Z", "se="+time.Now().UTC().Add(time.Hour).Format("2006-01-02T15:04:05Z"), 1)
	for range 3 {
		s.start(t)
	}
	s.Backend = s.open(t, "codalab")
	s.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s.Shape.LogContainer = strings.Replace(s.logs.URL, "se=2036-01-01T00%3A00%3A00Z", "se=2026-01-01T00%3A00%3A00Z", 1)
	s.start(t)
	if text := log.String(); strings.Count(text, "the signature of the log container ends soon") != 1 || strings.Count(text, "the signature of the log container has ended") != 1 || strings.Contains(text, s.logs.Signature) {
		t.Errorf("%s", text)
	}
}

func TestLogOfADeletedTaskIsStillInTheContainer(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	p := s.start(t)
	s.Print(p.Name, "stdout.txt", "old\n")
	s.Finish(p.Name, 0)
	s.Vanish(p.Name)
	if got, err := s.log(t, p); got != "old\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// lines is a writer that tells each piece of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestFollowedLogGoesOnOnTheNextNodeAndEndsWithTheWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2)
	p := s.start(t)
	pieces, done := make(lines), make(chan error, 1)
	go func() { done <- s.WriteLog(t.Context(), pieces, p, true) }()
	for _, text := range []string{"one\n", "two\n"} {
		s.Print(p.Name, "stderr.txt", text)
		if got := testenv.Receive(t, "the next line", pieces); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	s.Refuse(6, http.StatusServiceUnavailable, "ServerBusy", "The server is currently unable to receive requests. Please retry your request.")
	s.Preempt(p.Name)
	s.Print(p.Name, "stderr.txt", "again\n")
	if got := testenv.Receive(t, "the line of the second start", pieces); got != "again\n" {
		t.Errorf("%q", got)
	}
	s.Finish(p.Name, 0)
	testenv.Must(t, testenv.Receive(t, "the end of the log", done))
}

func TestLoggedHasTheLastPrintersFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	first, second, third, waits := s.start(t), s.start(t), s.start(t), s.start(t)
	for _, p := range []pilot.Pilot{first, second} {
		s.Finish(p.Name, 0)
	}
	s.Age(first.Name, time.Hour)
	s.Vanish(waits.Name)
	list, err := s.Logged(t.Context())
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{third.Name, second.Name, first.Name}, names); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
}
