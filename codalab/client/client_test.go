package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const (
	uuid   = "0x391c0ea24a8c49e98e2b9baf6b6d9bc1"
	secret = "correct horse"
)

// site is a server that grants tokens as CodaLab's does and otherwise
// answers as a test says.
type site struct {
	*httptest.Server
	grants atomic.Int32
	// refuse is the answer to a grant when it is not empty.
	refuse string
	// seconds is the life of the tokens.
	seconds int
}

// newSite returns a site that serves h to callers with the newest token.
func newSite(t *testing.T, h http.HandlerFunc) *site {
	t.Helper()
	s := &site{seconds: 3600}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /rest/oauth2/token", func(w http.ResponseWriter, r *http.Request) {
		id, _, _ := r.BasicAuth()
		w.Header().Set("Content-Type", "application/json")
		if s.refuse != "" || id != client.WorkerClient ||
			(r.FormValue("grant_type") == "password" && r.FormValue("password") != secret) {
			w.WriteHeader(http.StatusUnauthorized)
			say(w, "%s", s.refuse)
			return
		}
		n := s.grants.Add(1)
		say(w, `{"access_token": "token%d", "expires_in": %d, "token_type": "Bearer", "scope": "default", "refresh_token": "fresh%d"}`,
			n, s.seconds, n)
	})
	mux.HandleFunc("/rest/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != fmt.Sprintf("Bearer token%d", s.grants.Load()) {
			http.Error(w, "User is not authenticated.", http.StatusUnauthorized)
			return
		}
		h(w, r)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *site) client(t *testing.T, change func(*client.Options)) *client.Client {
	t.Helper()
	o := client.Options{
		Credentials: func(context.Context) (string, string, error) { return "anna", secret, nil },
	}
	if change != nil {
		change(&o)
	}
	c, err := client.New(s.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// say answers a call.
func say(w http.ResponseWriter, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

func recorded(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "codalab-1.7.3", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func wantStatus(t *testing.T, err error, status int) *codalab.Error {
	t.Helper()
	var refused *codalab.Error
	if !errors.As(err, &refused) || refused.Status != status {
		t.Fatalf("got error %v, want one with status %d", err, status)
	}
	return refused
}

func TestCheckInReturnsMessages(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.RequestURI, "/rest/workers/vm%28a%2Fb%29/checkin"; got != want {
			t.Errorf("called %s, want %s", got, want)
		}
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"runs":[]`)) || !bytes.Contains(body, []byte(`"dependencies":[]`)) {
			t.Errorf("sent %s, want empty lists", body)
		}
		say(w, `[{"type": "kill", "uuid": "0x1", "kill_message": "Kill requested"}, null]`)
	})
	got, err := s.client(t, nil).CheckIn(t.Context(), "vm(a/b)", codalab.CheckIn{})
	if err != nil {
		t.Fatal(err)
	}
	want := []codalab.Message{{Type: codalab.MessageKill, UUID: "0x1", KillMessage: "Kill requested"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestServersRefusalSteersNoTerminal(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		say(w, "bundle \x1b[2J\u202ex not found\nsee the worksheet\n")
	})
	_, err := s.client(t, nil).CheckIn(t.Context(), "w", codalab.CheckIn{})
	want := `POST /workers/w/checkin: 404 bundle \u001b[2J\u202ex not found` + "\nsee the worksheet"
	if err == nil || err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

func TestRefusalWithRetryAfterIsForNow(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"", "15"} {
		s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(http.StatusNotFound)
		})
		_, err := s.client(t, nil).CheckIn(t.Context(), "w", codalab.CheckIn{})
		var refused *codalab.Error
		if !errors.As(err, &refused) || refused.Later != (after != "") || refused.Transient() != refused.Later {
			t.Errorf("Retry-After %q: %#v", after, refused)
		}
	}
}

func TestStartBundleAnswers(t *testing.T) {
	t.Parallel()
	for _, mine := range []bool{true, false} {
		s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { say(w, "%v", mine) })
		got, err := s.client(t, nil).StartBundle(t.Context(), "w", uuid, codalab.StartBundle{})
		if err != nil || got != mine {
			t.Errorf("got %v, %v, want %v", got, err, mine)
		}
	}
}

func TestRepliesReachTheirSocket(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var calls []string
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, r.Method+" "+r.RequestURI+" "+string(body))
	})
	c := s.client(t, nil)
	err := c.Reply(t.Context(), "w", 7, codalab.ReadReply{ErrorCode: 404, ErrorMessage: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ReplyData(t.Context(), "w", 8, strings.NewReader("bytes")); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`POST /rest/workers/w/reply/7 {"error_code":404,"error_message":"gone"}`,
		`POST /rest/workers/w/reply_data/8?header_message=%7B%7D bytes`,
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Error(diff)
	}
}

func TestUnreachableServerIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.Close()
	_, err := s.client(t, nil).User(t.Context())
	refused := wantStatus(t, err, 0)
	if !refused.Transient() || !strings.HasPrefix(refused.Message, "cannot reach the server at "+s.URL+": ") {
		t.Errorf("got %q, transient %v", refused.Message, refused.Transient())
	}
}

func TestForeignServerIsNotTakenForCodaLab(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		say(w, "<html>hello</html>")
	}))
	defer s.Close()
	c, err := client.New(s.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.User(t.Context())
	if refused := wantStatus(t, err, http.StatusOK); !strings.Contains(refused.Message, "check the address "+s.URL) {
		t.Errorf("got %q", refused.Message)
	}
}

func TestCancelEndsAHeldCheckIn(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(held)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-held; cancel() }()
	if _, err := s.client(t, nil).CheckIn(ctx, "w", codalab.CheckIn{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestAddressNeedsASchemeAndNoPassword(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "localhost:2900", "ftp://x", "http://", "http://anna:hunter2@x", "::"} {
		_, err := client.New(address, client.Options{})
		if err == nil {
			t.Errorf("address %q was taken", address)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

func TestRecordedAnswersAreRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		name := "worksheet.json"
		if strings.HasPrefix(r.URL.Path, "/rest/bundles") {
			name = "bundles-verbose.json"
		}
		_, _ = w.Write(recorded(t, name))
	})
	c := s.client(t, nil)
	bundles, err := c.Bundles(t.Context(), "0xw", []string{"^2"}, client.IncludeOwner, client.IncludeWorksheets)
	if err != nil || len(bundles) != 1 {
		t.Fatalf("got %d bundles, %v", len(bundles), err)
	}
	b := bundles[0]
	if b.Metadata.String("name") != "multi" || b.Owner.UserName != "codalab" ||
		b.HostWorksheets[0].Name != "recws" || b.GroupPermissions[0].GroupName != "public" ||
		b.GroupPermissions[0].GroupID != "0x3cc231134eda4b5ab4e95f9092071001" {
		t.Errorf("got %+v", b)
	}
	w, err := c.WorksheetBundles(t.Context(), "0xw")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range w.Bundles {
		names = append(names, b.Metadata.String("name"))
	}
	want := []string{"a.txt", "d", "_", "a.txt", "multi", "a.txt"}
	if diff := cmp.Diff(want, names); diff != "" || w.Owner.UserName != "codalab" {
		t.Error(diff, w.Owner)
	}
}

func TestBundleIsPostedAsCodaLabDoes(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		want := `{"data":[{"type":"bundles","attributes":{"bundle_type":"run","command":"cat x",` +
			`"metadata":{"name":"r"},"dependencies":[{"child_path":"x","parent_uuid":"0x1","parent_path":"a/b"}]}}]}`
		if diff := cmp.Diff(want, string(body)); diff != "" || r.RequestURI != "/rest/bundles?include=group_permissions&worksheet=0xw" {
			t.Error(r.RequestURI, diff)
		}
		_, _ = w.Write(recorded(t, "bundle-created.json"))
	})
	b, err := s.client(t, nil).CreateBundle(t.Context(), client.NewBundle{
		Worksheet: "0xw", Type: codalab.TypeRun, Command: "cat x",
		Metadata:     codalab.Metadata{"name": "r"},
		Dependencies: []codalab.Dependency{{ChildPath: "x", ParentUUID: "0x1", ParentPath: "a/b"}},
	})
	if err != nil || b.State != codalab.StateCreated || b.UUID != "0x281997f8ffa84ae99c97824db6625428" {
		t.Errorf("got %+v, %v", b, err)
	}
}

// The answers are as a CodaLab server's, shortened.
func TestServerTellsItsVersionAndTheUsersGroups(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/rest/user":
			say(w, `{"data": {"type": "users", "id": "0x1", "attributes": {"user_name": "ann"}}, "meta": {"version": "1.7.3"}}`)
		case "/rest/groups":
			say(w, `{"data": [{"type": "groups", "id": "0x2", "attributes": {"name": "nlp", "user_defined": true}}, {"type": "groups", "id": "0x3", "attributes": {"name": "public"}}], "meta": {"version": "1.7.3"}}`)
		default:
			t.Errorf("%s was asked for", r.URL)
		}
	})
	c := s.client(t, nil)
	if version, err := c.ServerVersion(t.Context()); err != nil || version != "1.7.3" {
		t.Errorf("version %q, %v", version, err)
	}
	if groups, err := c.Groups(t.Context()); err != nil || !cmp.Equal(groups, []string{"nlp", "public"}) {
		t.Errorf("groups %q, %v", groups, err)
	}
}

func TestUnreadMessagesAreLoggedUnknownTypesOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		say(w, `[{"type":"dance","uuid":"0x1"},{"type":"dance","uuid":"0x2"},{"type":"read","uuid":"0x3","socket_id":"x"},{"type":"kill","uuid":"0x4"}]`)
	})
	var log bytes.Buffer
	c := s.client(t, func(o *client.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 2 {
		got, err := c.CheckIn(t.Context(), "w", codalab.CheckIn{})
		if err != nil || len(got) != 1 || got[0].UUID != "0x4" {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if n := strings.Count(log.String(), "type=dance"); n != 1 {
		t.Errorf("the unknown type was logged %d times:\n%s", n, &log)
	}
	if n := strings.Count(log.String(), `type=read bundle=0x3 error="decode message: socket_id is \"x\", which is no whole number"`); n != 2 {
		t.Errorf("the unreadable message was logged %d times:\n%s", n, &log)
	}
}

// CodaLab's own server answers as Python's json module writes: a NaN in one file must not hide the values of all others.
// The answer is one of a server 1.7.3.
func TestAnswerWithNaNIsRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		say(w, "%s", `{"data": [NaN, null, 0.50, -Infinity, "NaN, too"], "meta": {"version": "1.7.3"}}`)
	})
	values, err := s.client(t, nil).FileValues(t.Context(), make([]codalab.FileQuery, 5))
	if got := fmt.Sprintf("%v", values); err != nil || got != "[NaN <nil> 0.50 -Infinity NaN, too]" {
		t.Errorf("%s, %v", got, err)
	}
}

// The goroutines that share a long list keep its order, and one object that cannot be read fails it.
func TestLongListsAreReadInOrder(t *testing.T) {
	t.Parallel()
	const bundles = 1234
	broken := false
	c := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		var list []codalab.Object
		for i := range bundles {
			o := codalab.NewObject("bundles", fmt.Sprintf("0x%d", i), map[string]any{"command": strconv.Itoa(i)})
			if broken && i == bundles-7 {
				o = codalab.NewObject("bundles", o.ID, map[string]any{"command": i})
			}
			o.Relationships = map[string]codalab.Relationship{"owner": codalab.ToOne("users", strconv.Itoa(i%3))}
			list = append(list, o)
		}
		_, _ = w.Write(codalab.AppendDocument(nil, list, []codalab.Object{codalab.NewObject("users", "1", map[string]any{"user_name": "ann"})}, nil))
	}).client(t, nil)
	found, _, err := c.ListBundles(t.Context(), "0xw", nil)
	if err != nil || len(found) != bundles {
		t.Fatal(len(found), err)
	}
	for i, b := range found {
		name := ""
		if i%3 == 1 {
			name = "ann"
		}
		if b.UUID != fmt.Sprintf("0x%d", i) || *b.Command != strconv.Itoa(i) || b.Owner.ID != strconv.Itoa(i%3) || b.Owner.UserName != name {
			t.Fatalf("bundle %d is %+v of %+v", i, b.Bundle, b.Owner)
		}
	}
	broken = true
	if _, _, err := c.ListBundles(t.Context(), "0xw", nil); err == nil || !strings.Contains(err.Error(), "0x1227") {
		t.Errorf("a list with a command that is a number: %v", err)
	}
}
