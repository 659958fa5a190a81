package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/notify"
	"github.com/cl-slurm/cl-slurm/internal/pipenet"
)

const token = "T000/B000/verysecret"

// chat is a server that answers messages one after another: with a status, and a header Retry-After if wait is not empty.
type chat struct {
	answers []answer
	got     []string
}

type answer struct {
	status int
	body   string
	header map[string]string
}

func (c *chat) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.got = append(c.got, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type")+" "+string(body))
	a := c.answers[min(len(c.got), len(c.answers))-1]
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// send sends a text to a chat, and returns the time that it took.
func send(t *testing.T, c *chat, text string) (took time.Duration, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := pipenet.Listen()
		server := &http.Server{Handler: c}
		go func() { _ = server.Serve(network) }()
		transport := &http.Transport{DialContext: network.Dial, DisableKeepAlives: true}
		hook, bad := notify.NewWebhook("http://hooks.example/services/"+token+"\n", transport)
		if bad != nil {
			t.Fatal(bad)
		}
		begun := time.Now()
		err = hook.Send(t.Context(), text)
		took = time.Since(begun)
		_ = server.Close()
		synctest.Wait()
	})
	return took, err
}

func TestMessageHasSlacksShape(t *testing.T) {
	t.Parallel()
	c := &chat{answers: []answer{{status: 200, body: "ok"}}}
	if _, err := send(t, c, "2 of 3 ready\na<!channel> & \"b\" failed"); err != nil {
		t.Fatal(err)
	}
	want := []string{`POST /services/` + token + ` application/json {"text":"2 of 3 ready\na\u0026lt;!channel\u0026gt; \u0026amp; \"b\" failed"}`}
	if diff := cmp.Diff(want, c.got); diff != "" {
		t.Errorf("the chat gets (-want +got):\n%s", diff)
	}
	var message map[string]string
	_, body, _ := strings.Cut(c.got[0], "json ")
	if err := json.Unmarshal([]byte(body), &message); err != nil || message["text"] != "2 of 3 ready\na&lt;!channel&gt; &amp; \"b\" failed" {
		t.Errorf("%v, %v", message, err)
	}
}

func TestMessageIsSentAgainABoundedNumberOfTimes(t *testing.T) {
	t.Parallel()
	down := answer{status: 502}
	for _, test := range []struct {
		name        string
		answers     []answer
		tries       int
		least, most time.Duration
		want        string
	}{
		{"at once", []answer{{status: 204}}, 1, 0, 0, ""},
		{"after two failures", []answer{down, down, {status: 200}}, 3, 3 * time.Second, 4 * time.Second, ""},
		{"never", []answer{down}, 4, 7 * time.Second, 9 * time.Second, "hooks.example answers 502 Bad Gateway"},
		{"too busy", []answer{{status: 429, header: map[string]string{"Retry-After": "20"}}, {status: 200}}, 2, 20 * time.Second, 20 * time.Second, ""},
		{"busy for ever", []answer{{status: 429, header: map[string]string{"Retry-After": "86400"}}, {status: 200}}, 2, 30 * time.Second, 30 * time.Second, ""},
		{"refused", []answer{{status: 404, body: "no_service\n"}}, 1, 0, 0, "hooks.example answers 404 Not Found (no_service)"},
		{"refused with the address", []answer{{status: 400, body: "no hook " + token}}, 1, 0, 0, "hooks.example answers 400 Bad Request"},
		{"moved", []answer{{status: 307, header: map[string]string{"Location": "http://other.example/" + token}}}, 1, 0, 0, "hooks.example answers 307 Temporary Redirect"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := &chat{answers: test.answers}
			took, err := send(t, c, "text")
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != test.want || len(c.got) != test.tries || took < test.least || took > test.most {
				t.Errorf("%q after %d tries in %s", text, len(c.got), took)
			}
		})
	}
}

// failing is a network without a way to the host.
type failing struct{ dials int }

func (f *failing) dial(context.Context, string, string) (net.Conn, error) {
	f.dials++
	return nil, errors.New("network is unreachable")
}

func TestUnreachableHostIsNamedWithoutTheRestOfTheAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var network failing
		hook, err := notify.NewWebhook("https://hooks.example/"+token, &http.Transport{DialContext: network.dial})
		if err != nil {
			t.Fatal(err)
		}
		err = hook.Send(t.Context(), "text")
		if want := "cannot reach hooks.example: network is unreachable"; err == nil || err.Error() != want || network.dials != 4 {
			t.Errorf("%v after %d tries", err, network.dials)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		if err := hook.Send(ctx, "text"); err == nil || time.Since(begun) > 0 {
			t.Errorf("after Ctrl-C: %v in %s", err, time.Since(begun))
		}
	})
}

func TestAddressThatIsNoneIsRefusedWithoutRepeatingIt(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "hooks.example/" + token, "ftp://hooks.example/" + token, "https:///" + token, "https://h\x7f/" + token} {
		_, err := notify.NewWebhook(address, nil)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
