package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
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
