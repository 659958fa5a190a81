package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// tables is a server with a worksheet of one bundle, which shows tables. It refuses to read more than most rows in a request.
type tables struct {
	number, rows int
	cell         string
	most         int
	contents     bool
	// bytes and reads are the sum of all requests for rows and their number, and largest is the largest.
	bytes, reads, largest int
	early                 bool
}

func (s *tables) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	s.early = s.early || !s.contents && strings.Contains(r.URL.Path, "/interpret/")
	switch {
	case strings.HasSuffix(r.URL.Path, "/contents/blob/"):
		s.contents = true
		w.Header().Set("Target-Type", "file")
		_, _ = io.WriteString(w, "text")
	case strings.Contains(r.URL.Path, "/interpret/worksheet/"):
		rows := make([]map[string]any, s.rows)
		for i := range rows {
			rows[i] = map[string]any{"a": s.cell, "b": i}
		}
		blocks := []map[string]any{{"mode": "table_block", "header": []string{}, "rows": rows[:1]}}
		for range s.number {
			blocks = append(blocks, map[string]any{"mode": "table_block", "header": []string{"a", "b"}, "rows": rows})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"blocks": blocks})
	case strings.HasSuffix(r.URL.Path, "/genpath-table-contents"):
		var in struct {
			Contents []map[string]any `json:"contents"`
		}
		text, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(text, &in)
		s.bytes, s.reads, s.largest = s.bytes+len(text), s.reads+1, max(s.largest, len(text))
		if len(in.Contents) > s.most {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "more than 1 files to read")
			return
		}
		_ = json.NewEncoder(w).Encode(in)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// export returns the page of the server's worksheet.
func (s *tables) export(t *testing.T) string {
	t.Helper()
	site := httptest.NewServer(s)
	t.Cleanup(site.Close)
	from, err := client.New(site.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	item := client.Item{WorksheetItem: codalab.WorksheetItem{Type: codalab.ItemBundle}, Bundle: &client.BundleInfo{Bundle: codalab.Bundle{
		UUID: someUUID, Type: codalab.TypeDataset, State: codalab.StateReady, Metadata: codalab.Metadata{"name": "d"},
	}}}
	var sheet client.Worksheet
	sheet.Items, sheet.Bundles = []client.Item{item}, []client.BundleInfo{*item.Bundle}
	e, err := Prepare(from, sheet, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := e.Write(t.Context(), &out, nil); err != nil {
		t.Fatal(err)
	}
	z, err := tarstream.OpenZip(bytes.NewReader(out.Bytes()), int64(out.Len()), mostDirectory)
	if err != nil {
		t.Fatal(err)
	}
	f, err := z.Open(pageName)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// TestTablesAreReadAtTheEndAndInParts: a reader who waits for contents costs the server no tables, and while these are written
// only a part of their cells is there. Each row is read once, those of small tables together.
func TestTablesAreReadAtTheEndAndInParts(t *testing.T) {
	t.Parallel()
	for _, s := range []*tables{{number: 2, rows: 5_000, cell: strings.Repeat("x", 400), most: 1 << 20}, {number: 300, rows: 1, cell: "x", most: 1 << 20}} {
		page := s.export(t)
		if s.early {
			t.Error("tables are read before the contents")
		}
		if most := s.bytes/mostRows*2 + 1; s.largest > mostRows*11/10 || s.reads > most {
			t.Errorf("%d requests of up to %d bytes instead of %d of %d", s.reads, s.largest, most, mostRows)
		}
		if got := strings.Count(page, "<td>"); got < s.number*s.rows || strings.Count(page, "<tr><td>"+s.cell+"</td><td>0</td></tr>") != s.number {
			t.Errorf("the page has %d cells:\n%.2000s", got, page)
		}
		if last := fmt.Sprintf("<td>%d</td></tr>\n</tbody>", s.rows-1); strings.Count(page, last) != s.number {
			t.Errorf("the tables have other ends than %q", last)
		}
	}
}

// TestRowsThatAServerRefusesAreNamed: a request that is too much is divided, as often as a bound allows; what a server refuses
// at last breaks no archive, and the page has the server's sentence.
func TestRowsThatAServerRefusesAreNamed(t *testing.T) {
	t.Parallel()
	divided := &tables{number: 3, rows: 100, cell: "x", most: 10}
	if page := divided.export(t); strings.Contains(page, "Not here") || strings.Count(page, "<td>x</td>") != 300 {
		t.Errorf("%d cells are there", strings.Count(page, "<td>x</td>"))
	}
	refused := &tables{number: 2, rows: 5_000, cell: "x"}
	page := refused.export(t)
	if got := strings.Count(page, "<td>Not here: more than 1 files to read</td><td></td>"); got != 10_000 || refused.reads > mostCalls+5 {
		t.Errorf("%d rows are refused in %d requests", got, refused.reads)
	}
}
