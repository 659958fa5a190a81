package client_test

import (
	"archive/tar"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

func TestResultsOfSeveralRunsAreOneTarStream(t *testing.T) {
	t.Parallel()
	in := []client.RunResults{
		{ResultsOf: codalab.ResultsOf{UUID: "0x1", Identity: "a"}, Archive: []byte("first")},
		{ResultsOf: codalab.ResultsOf{UUID: "0x2", Identity: "b"}, Archive: []byte("second")},
	}
	for status, want := range map[int]error{200: nil, 404: errors.ErrUnsupported, 405: errors.ErrUnsupported} {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Method + " " + r.URL.EscapedPath(); got != "POST /rest/workers/host-%281%29/results" {
				t.Error(got)
			}
			var got []string
			for body := tar.NewReader(r.Body); ; {
				h, err := body.Next()
				if err != nil {
					if !errors.Is(err, io.EOF) {
						t.Error(err)
					}
					break
				}
				data, err := io.ReadAll(body)
				if err != nil {
					t.Error(err)
				}
				got = append(got, h.Name+" "+string(data))
			}
			want := []string{`results.json {"bundles":[{"uuid":"0x1","identity":"a"},{"uuid":"0x2","identity":"b"}]}`, "0x1.tar.gz first", "0x2.tar.gz second"}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"bundles":[{"uuid":"0x1"},{"uuid":"0x2","status":403,"message":"m"}]}`)
		})
		got, err := s.client(t, nil).UploadResults(t.Context(), "host-(1)", in)
		if !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", status, err, want)
		}
		if answers := []codalab.ResultsAnswer{{UUID: "0x1"}, {UUID: "0x2", Status: 403, Message: "m"}}; err == nil && !slices.Equal(got, answers) {
			t.Errorf("%+v", got)
		}
	}
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"bundles":[]}`) })
	if _, err := s.client(t, nil).UploadResults(t.Context(), "w", in); err == nil {
		t.Error("an answer without the runs is one")
	}
}
