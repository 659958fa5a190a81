package stocktest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/stocktest"
)

// standIn is a stand-in with one user, the owner of the bundles and the worker.
type standIn struct {
	*testing.T
	server *stocktest.Server
	client *client.Client
}

// bubble runs a test of a stand-in in a bubble.
func bubble(t *testing.T, o stocktest.Options, test func(w *standIn)) {
	t.Helper()
	o.Dir = t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o.Users = append(o.Users, stocktest.User{Name: "ann", Password: "a"})
		w := &standIn{T: t, server: start(t, o)}
		w.client = w.as(o.Users[0].Name, o.Users[0].Password)
		test(w)
	})
}

func (w *standIn) as(name, password string) *client.Client {
	w.Helper()
	c, err := client.New(stocktest.Address, client.Options{
		HTTP:        w.server.Client(),
		Credentials: func(context.Context) (string, string, error) { return name, password, nil },
	})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func (w *standIn) createRun() string {
	w.Helper()
	m := codalab.Metadata{"name": "run", "request_queue": "q"}
	for _, k := range codalab.MetadataKeys(codalab.TypeRun) {
		if _, set := m[k.Key]; !k.Generated && !set {
			m[k.Key] = k.Default
		}
	}
	b, err := w.client.CreateBundle(w.Context(), client.NewBundle{Worksheet: "0x", Type: codalab.TypeRun, Command: "true", Metadata: m})
	if err != nil {
		w.Fatal(err)
	}
	return b.UUID
}

// checkIn checks a worker in.
func (w *standIn) checkIn(by *client.Client, runs ...codalab.Run) ([]codalab.Message, error) {
	return by.CheckIn(w.Context(), "w", codalab.CheckIn{
		Tag: "q", CPUs: 4, MemoryBytes: 8 << 30, FreeDiskBytes: 1 << 40, ExitAfterNumRuns: codalab.UnlimitedRuns, Runs: runs,
	})
}

// claimNext waits for an offered run and claims it.
func (w *standIn) claimNext(by *client.Client) string {
	w.Helper()
	for range 5 {
		messages, err := w.checkIn(by)
		if err != nil {
			w.Fatal(err)
		}
		for _, m := range messages {
			mine, err := by.StartBundle(w.Context(), "w", m.Bundle.UUID, codalab.StartBundle{Hostname: "node7", StartTime: time.Now().Unix()})
			if err != nil || !mine {
				w.Fatalf("claim: %v, %v", mine, err)
			}
			return m.Bundle.UUID
		}
	}
	w.Fatal("no run is offered")
	return ""
}

// checkInBackground checks in in the background.
func (w *standIn) checkInBackground(runs ...codalab.Run) <-chan []codalab.Message {
	c := make(chan []codalab.Message, 1)
	go func() {
		messages, _ := w.checkIn(w.client, runs...) // a fault may break it
		c <- messages
	}()
	return c
}

func (w *standIn) wantState(uuid string, want codalab.State) {
	w.Helper()
	if got := w.server.State(uuid); got != want {
		w.Errorf("it is %s, want %s", got, want)
	}
}

func reportOf(uuid string, s codalab.State) codalab.Run {
	zero := 0
	r := codalab.Run{UUID: uuid, State: s, Profile: map[string]codalab.StageTimes{}}
	for _, stage := range codalab.Stages() {
		r.Profile[stage] = codalab.StageTimes{}
	}
	if s == codalab.StateFinalizing {
		r.ExitCode = &zero
	}
	return r
}

func TestLostAnswerWithAnAcknowledgementEndsTheRun(t *testing.T) {
	t.Parallel()
	var lose atomic.Bool
	o := stocktest.Options{Faults: stocktest.Faults{LoseAnswer: func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/checkin") && lose.Load()
	}}}
	bubble(t, o, func(w *standIn) {
		w.createRun()
		uuid := w.claimNext(w.client)
		lose.Store(true)
		if messages, err := w.checkIn(w.client, reportOf(uuid, codalab.StateFinalizing)); err == nil {
			w.Errorf("the answer %v was not lost", messages)
		}
		time.Sleep(time.Second)
		w.wantState(uuid, codalab.StateReady)
		lose.Store(false)
		if messages, err := w.checkIn(w.client); err != nil || len(messages) > 0 {
			w.Errorf("what was lost was messages again: %v, %v", messages, err)
		}
	})
}

func TestCheckInThatIsLateBringsARunBack(t *testing.T) {
	t.Parallel()
	late := make(chan struct{})
	o := stocktest.Options{Faults: stocktest.Faults{BeforeCheckIn: func(_ string, in codalab.CheckIn) {
		if len(in.Runs) > 0 && in.Runs[0].State == codalab.StateRunning {
			<-late
		}
	}}}
	bubble(t, o, func(w *standIn) {
		late = make(chan struct{}) // the bubble's
		w.createRun()
		uuid := w.claimNext(w.client)
		slow := w.checkInBackground(reportOf(uuid, codalab.StateRunning))
		fast := w.checkInBackground(reportOf(uuid, codalab.StateFinalizing))
		if messages := <-fast; len(messages) != 1 || messages[0].Type != codalab.MessageMarkFinalized {
			w.Fatalf("got %v, want the acknowledgement", messages)
		}
		time.Sleep(time.Second)
		w.wantState(uuid, codalab.StateReady)
		close(late)
		<-slow
		w.wantState(uuid, codalab.StateWorkerOffline)
	})
}

func TestUploadThatIsThrownAwayIsMissed(t *testing.T) {
	t.Parallel()
	times := 0
	o := stocktest.Options{Faults: stocktest.Faults{DiscardUpload: func(string) bool {
		times++
		return times == 1
	}}}
	bubble(t, o, func(w *standIn) {
		w.createRun()
		uuid := w.claimNext(w.client)
		up := client.UploadOptions{Filename: "stdout", Unpack: false}
		for _, want := range []int{http.StatusNotFound, 0} {
			if err := w.client.UploadContents(w.Context(), uuid, up, strings.NewReader("hello")); err != nil {
				w.Fatal(err)
			}
			<-w.checkInBackground(reportOf(uuid, codalab.StateFinalizing))
			time.Sleep(time.Second)
			_, err := w.client.ContentsInfo(w.Context(), codalab.Target{BundleUUID: uuid}, 0)
			if status(err) != want {
				w.Errorf("got %v, want status %d", err, want)
			}
			// A late report makes the bundle's contents ones that may change.
			<-w.checkInBackground(reportOf(uuid, codalab.StateRunning))
		}
	})
}

func TestRestartBreaksCheckInsAndTokensAreGotAnew(t *testing.T) {
	t.Parallel()
	bubble(t, stocktest.Options{}, func(w *standIn) {
		if _, err := w.checkIn(w.client); err != nil {
			w.Fatal(err)
		}
		time.AfterFunc(time.Second, w.server.Restart)
		if _, err := w.checkIn(w.client); err == nil {
			w.Error("a check-in outlived the restart")
		}
		w.server.DropTokens()
		if _, err := w.checkIn(w.client); err != nil {
			w.Errorf("no new login: %v", err)
		}
	})
}

func status(err error) int {
	var e *codalab.Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// TestNetworkReachesTheStandIn: programs of their own reach it so.
func TestNetworkReachesTheStandIn(t *testing.T) {
	t.Parallel()
	s := start(t, stocktest.Options{
		Dir: t.TempDir(), Users: []stocktest.User{{Name: "ann", Password: "a"}}, Hold: 10 * time.Millisecond, Pass: 10 * time.Millisecond,
	})
	network := httptest.NewServer(s)
	defer network.Close()
	c, err := client.New(network.URL, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", "a", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &standIn{T: t, server: s, client: c}
	uuid := w.createRun()
	for len(uuid) > 0 {
		messages, err := w.checkIn(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if m.Bundle.UUID != uuid {
				t.Errorf("%s was offered", m.Bundle.UUID)
			}
			uuid = ""
		}
	}
}
