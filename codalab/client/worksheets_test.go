package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// A server without tags of worksheets, as CodaLab's own, cannot tell whether somebody has changed the lines.
func TestLinesNeedATag(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		tag    string
		want   bool
	}{
		"cl-server":     {http.StatusOK, `"a"`, true},
		"no tag":        {http.StatusOK, "", false},
		"CodaLab's own": {http.StatusMethodNotAllowed, "", false},
	} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if test.tag != "" {
				w.Header().Set("ETag", test.tag)
			}
			w.WriteHeader(test.status)
			_, _ = w.Write([]byte("a line"))
		}))
		t.Cleanup(web.Close)
		c, err := client.New(web.URL, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		text, tag, err := c.WorksheetLines(t.Context(), "0x00000000000000000000000000000001")
		if got := err == nil && text == "a line" && tag == test.tag; got != test.want || !test.want && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %q %q %v", name, text, tag, err)
		}
	}
}

// TestLongTablesTakeSeveralCalls: no request has more than the 8 MiB that servers take, and the rows stay in their order.
func TestLongTablesTakeSeveralCalls(t *testing.T) {
	t.Parallel()
	calls := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<20))
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body) // the client fails otherwise
	}))
	t.Cleanup(web.Close)
	c, err := client.New(web.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []json.RawMessage
	for i := range 10 {
		rows = append(rows, json.RawMessage(`{"name":"`+strconv.Itoa(i)+strings.Repeat("x", 1<<20)+`"}`))
	}
	cells, err := c.TableContents(t.Context(), rows)
	if err != nil || len(cells) != len(rows) || calls != 4 {
		t.Fatalf("%d rows in %d calls, %v", len(cells), calls, err)
	}
	for i, row := range cells {
		if name, _ := row["name"].(string); !strings.HasPrefix(name, strconv.Itoa(i)) {
			t.Errorf("row %d is %.10q", i, name)
		}
	}
}
