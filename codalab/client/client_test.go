package client_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

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

// newSite serves h to those who bring the newest token.
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

func closed(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
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

func TestOneOfManyCallersGetsTheToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { say(w, `{"data": {}}`) })
	c := s.client(t, nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := c.User(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := s.grants.Load(); n != 1 {
		t.Errorf("%d tokens were got, want 1", n)
	}
}

func TestRefusedTokenIsRenewedOnce(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		http.Error(w, "User is not verified.", http.StatusUnauthorized)
	})
	c := s.client(t, nil)
	_, err := c.User(t.Context())
	refused := wantStatus(t, err, http.StatusUnauthorized)
	if refused.Message != "User is not verified." || refused.Transient() {
		t.Errorf("got %v, transient %v", refused, refused.Transient())
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

func TestTokenIsRenewedBeforeItRunsOut(t *testing.T) {
	t.Parallel()
	var tokens []string
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		say(w, `{"data": {}}`)
	})
	now := time.Unix(1_800_000_000, 0)
	c := s.client(t, func(o *client.Options) { o.Now = func() time.Time { return now } })
	for _, later := range []time.Duration{0, 50 * time.Minute, 6 * time.Minute} {
		now = now.Add(later)
		if _, err := c.User(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"Bearer token1", "Bearer token1", "Bearer token2"}
	if diff := cmp.Diff(want, tokens); diff != "" {
		t.Error(diff)
	}
}

func TestWrongPasswordIsPermanentAndSecret(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.refuse = `{"error": "invalid_grant", "error_description": "Invalid credentials given."}`
	_, err := s.client(t, nil).User(t.Context())
	refused := wantStatus(t, err, http.StatusUnauthorized)
	if !errors.Is(err, client.ErrCredentials) || refused.Transient() {
		t.Errorf("got %v, transient %v, want ErrCredentials", err, refused.Transient())
	}
	want := fmt.Sprintf("wrong user name or password: the server at %s refuses user %q", s.URL, "anna")
	if refused.Message != want {
		t.Errorf("got message %q, want %q", refused.Message, want)
	}
}

// memory is a token cache that others may write to.
type memory struct{ token client.Token }

func (m *memory) Load() client.Token  { return m.token }
func (m *memory) Save(t client.Token) { m.token = t }

func TestTokenOfAnotherProcessIsUsed(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { say(w, `{"data": {}}`) })
	cache := &memory{}
	if _, err := s.client(t, func(o *client.Options) { o.Tokens = cache }).User(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := s.client(t, func(o *client.Options) {
		o.Tokens = cache
		o.Credentials = func(context.Context) (string, string, error) {
			return "", "", errors.New("nobody is there to ask")
		}
	})
	if _, err := other.User(t.Context()); err != nil {
		t.Error(err)
	}
	if n := s.grants.Load(); n != 1 {
		t.Errorf("%d tokens were got, want 1", n)
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

func zip(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.Bytes()
}

func TestContentsArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		header   map[string]string
		body     []byte
		want     string
		wantType codalab.TargetType
		wantErr  bool
	}{
		{"plain file", map[string]string{"Target-Type": "file"}, []byte("hello"), "hello", codalab.TargetFile, false},
		{"gzip file", map[string]string{"Target-Type": "file", "Content-Encoding": "gzip"}, zip("hello"), "hello", codalab.TargetFile, false},
		{"broken gzip file", map[string]string{"Target-Type": "file", "Content-Encoding": "gzip"}, zip("hello")[:20], "", codalab.TargetFile, true},
		{"directory", map[string]string{"Target-Type": "directory", "Content-Encoding": "identity"}, zip("tar"), string(zip("tar")), codalab.TargetDirectory, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
				if want := "/rest/bundles/" + uuid + "/contents/blob/a/b%20c"; r.RequestURI != want {
					t.Errorf("called %s, want %s", r.RequestURI, want)
				}
				if got := r.Header.Get("Range"); got != "bytes=10-24" {
					t.Errorf("range %q", got)
				}
				for k, v := range test.header {
					w.Header().Set(k, v)
				}
				w.Header().Set("X-Codalab-Target-Size", "5")
				_, _ = w.Write(test.body)
			})
			c := s.client(t, func(o *client.Options) { o.Compress = true })
			contents, err := c.OpenContents(t.Context(),
				codalab.Target{BundleUUID: uuid, Subpath: "a/b c"}, &client.Range{Offset: 10, Length: 15})
			if err != nil {
				t.Fatal(err)
			}
			defer closed(t, contents)
			got, err := io.ReadAll(contents)
			if (err != nil) != test.wantErr {
				t.Fatal(err)
			}
			if err == nil && (string(got) != test.want || contents.Type != test.wantType || contents.Size != 5) {
				t.Errorf("got %q of type %s and size %d", got, contents.Type, contents.Size)
			}
		})
	}
}

func TestBrokenOffStreamIsAnError(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	contents, err := s.client(t, nil).OpenContents(t.Context(), codalab.Target{BundleUUID: uuid}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, contents)
	if _, err := io.ReadAll(contents); err == nil {
		t.Error("half a stream was taken for a whole one")
	}
}

func TestMissingTargetIs404(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if want := "/rest/bundles/" + uuid + "/contents/info/?depth=1"; r.RequestURI != want {
			t.Errorf("called %s, want %s", r.RequestURI, want)
		}
		http.Error(w, "Path '' in bundle "+uuid+" not found", http.StatusNotFound)
	})
	_, err := s.client(t, nil).ContentsInfo(t.Context(), codalab.Target{BundleUUID: uuid}, 1)
	if refused := wantStatus(t, err, http.StatusNotFound); refused.Message != "Path '' in bundle "+uuid+" not found" {
		t.Errorf("got message %q", refused.Message)
	}
}

func TestUploadIsStreamed(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.ContentLength != -1 {
			t.Errorf("length %d was sent, want chunks", r.ContentLength)
		}
		want := "filename=d.tar.gz&finalize_on_failure=1&finalize_on_success=1&state_on_success=ready&store=&unpack=1&use_azure_blob_beta=0"
		if r.URL.RawQuery != want {
			t.Errorf("query %s, want %s", r.URL.RawQuery, want)
		}
		body, _ := io.ReadAll(r.Body)
		if string(body) != "archive" {
			t.Errorf("got %q", body)
		}
	})
	err := s.client(t, nil).UploadContents(t.Context(), uuid, client.UploadOptions{
		Filename: "d.tar.gz", Unpack: true, FinalizeOnSuccess: true, FinalizeOnFailure: true,
		StateOnSuccess: codalab.StateReady,
	}, strings.NewReader("archive"))
	if err != nil {
		t.Error(err)
	}
}

func TestRefusedUploadReadsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Contents cannot be modified, bundle already finalized.", http.StatusForbidden)
	})
	body := iotest.ErrReader(errors.New("was read"))
	patient := func(o *client.Options) { // however busy the machine is
		o.HTTP = &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	}
	err := s.client(t, patient).UploadContents(t.Context(), uuid, client.UploadOptions{Filename: "f"}, body)
	_ = wantStatus(t, err, http.StatusForbidden)
}

func TestUploadReturnsItsSourcesError(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			t.Error("half a body was taken for a whole one")
		}
	})
	broken := errors.New("read /data/x: input/output error")
	body := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))
	err := s.client(t, nil).UploadContents(t.Context(), uuid, client.UploadOptions{Filename: "f"}, body)
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
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
			`"dependencies":[{"child_path":"x","parent_uuid":"0x1","parent_path":"a/b"}],"metadata":{"name":"r"}}}]}`
		if diff := cmp.Diff(want, string(body)); diff != "" || r.RequestURI != "/rest/bundles?worksheet=0xw" {
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
