package main

import (
	"net/http"
	"strings"
	"testing"
)

// Of large files, the sizes are compared, and nothing is read unless the user asks for it.
func TestDiffReadsNoLargeFile(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	a, b := make([]byte, diffFile+1), make([]byte, diffFile+1)
	b[diffFile] = 1
	s.uploaded(t, "a", a)
	s.uploaded(t, "b", b)
	s.heal()
	r := s.ends(t, 2, "diff", "a", "b")
	if calls := s.called("GET"); len(calls) > 0 || !strings.Contains(r.stdout, "? .  16.0m, not compared: large") {
		t.Errorf("%d files were read: %s", len(calls), r.stdout)
	}
	if r := s.ends(t, 1, "diff", "a", "b", "--whole"); !strings.Contains(r.stdout, "~ .  16.0m, large") {
		t.Error(r.stdout)
	}
	if calls := s.called("GET"); len(calls) != 2 {
		t.Errorf("%d files were read", len(calls))
	}
}

// A script that asks whether two runs differ takes no trouble for an answer.
func TestTroubleIsNoDifference(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	s.uploaded(t, "a", []byte("1"))
	s.uploaded(t, "b", []byte("2"))
	s.ends(t, 1, "diff", "a", "b")
	s.on("GET", "/contents/blob/", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, "not for you", http.StatusForbidden)
	})
	s.ends(t, 2, "diff", "a", "b")
	s.heal()
	s.on("GET", "/contents/info/", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, "away", http.StatusBadGateway)
	})
	s.ends(t, 3, "diff", "a", "b")
	s.heal()
	s.ends(t, 2, "diff", "a")
	s.ends(t, 2, "diff", "--unknown", "a", "b")
	s.ends(t, 2, "diff", "--stat", "--text", "a", "b")
}

// The last byte differs, and both answers break off before it.
func TestFilesWhoseAnswersBreakOffAreNotEqual(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	same := strings.Repeat("a", 1000)
	s.uploaded(t, "a", []byte(same+"1"))
	s.uploaded(t, "b", []byte(same+"2"))
	s.on("GET", "/contents/blob/", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Target-Type", "file")
		w.Header().Set("Content-Length", "1001")
		_, _ = w.Write([]byte(same[:500])) // the connection ends with it
	})
	s.ends(t, 2, "diff", "a", "b")
}
