package interpret

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// The files in testdata/stock hold the recorded answers of CodaLab's own code (see
// generate.py there).

// readStock decodes a file of testdata/stock.
func readStock(t *testing.T, name string, to any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "stock", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	decode(t, data, to)
}

func decode(t *testing.T, data []byte, to any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(to); err != nil {
		t.Fatal(err)
	}
}

// shown is a value as a client reads it.
func shown(t *testing.T, value any) any {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	decode(t, data, &out)
	return out
}

func TestStockWords(t *testing.T) {
	t.Parallel()
	var cases []struct {
		Text, Joined, Error string
		Tokens              []string
	}
	readStock(t, "words", &cases)
	for _, c := range cases {
		tokens, err := codalab.SplitWords(c.Text)
		if c.Error != "" {
			if err == nil || err.Error() != c.Error {
				t.Errorf("%q: error %v, want %s", c.Text, err, c.Error)
			}
			continue
		}
		if diff := cmp.Diff(c.Tokens, tokens); err != nil || diff != "" {
			t.Errorf("%q: error %v, words (-want +got):\n%s", c.Text, err, diff)
		}
		if got := codalab.JoinWords(tokens); got != c.Joined {
			t.Errorf("%q: joined %q, want %q", c.Text, got, c.Joined)
		}
	}
}

func TestStockPostFunctions(t *testing.T) {
	t.Parallel()
	var cases []struct {
		Post      *string
		Arg, Want any
	}
	readStock(t, "post", &cases)
	for _, c := range cases {
		got := shown(t, posts{}.apply(c.Post, normal(c.Arg)))
		if diff := cmp.Diff(c.Want, got); diff != "" {
			name := "none"
			if c.Post != nil {
				name = *c.Post
			}
			t.Errorf("%s of %#v (-want +got):\n%s", name, c.Arg, diff)
		}
	}
}

func TestStockForm(t *testing.T) {
	t.Parallel()
	var cases []struct {
		Line, Back, Error string
		Item              struct{ Bundle, Worksheet, Value, Type string }
	}
	readStock(t, "form", &cases)
	for _, c := range cases {
		items, err := ParseForm([]string{c.Line}, stockResolver())
		if c.Error != "" {
			if err == nil || err.Error() != c.Error {
				t.Errorf("%q: error %v, want %s", c.Line, err, c.Error)
			}
			continue
		}
		want := []Item{{Type: c.Item.Type, Value: c.Item.Value, BundleUUID: c.Item.Bundle, SubworksheetUUID: c.Item.Worksheet}}
		if diff := cmp.Diff(want, items); err != nil || diff != "" {
			t.Errorf("%q: error %v, items (-want +got):\n%s", c.Line, err, diff)
			continue
		}
		if got := Lines(items, nil, nil)[0]; got != c.Back {
			t.Errorf("%q: written as %q, want %q", c.Line, got, c.Back)
		}
	}
}

// stockResolver resolves b1 to b9 and w1 to w9, as generate.py does.
func stockResolver() Resolver {
	find := func(kind, prefix string, base int) func(string) (string, error) {
		return func(spec string) (string, error) {
			spec = strings.TrimSpace(spec)
			if n, ok := strings.CutPrefix(spec, prefix); ok && len(n) == 1 {
				return fmt.Sprintf("0x%032x", base+int(n[0]-'0')), nil
			}
			return "", &UsageError{"no " + kind + " " + spec}
		}
	}
	return Resolver{Bundle: find("bundle", "b", 0), Worksheet: find("worksheet", "w", 100)}
}

// stockFiles reads files as the server of generate.py does.
func stockFiles(files map[string][]byte) ReadFile {
	return func(_ context.Context, uuid, path string, limit int64) ([]byte, error) {
		data, ok := files[path]
		switch {
		case strings.HasSuffix(uuid, "9"):
			return nil, fs.ErrPermission
		case path == "dir":
			return nil, ErrDirectory
		case !ok:
			return nil, fs.ErrNotExist
		}
		return data[:min(int64(len(data)), limit)], nil
	}
}

func TestStockFileGenpaths(t *testing.T) {
	t.Parallel()
	var stock struct {
		Files map[string][]byte
		Cases []struct {
			Genpath string
			Want    any
		}
	}
	readStock(t, "files", &stock)
	in := Interpreter{Read: stockFiles(stock.Files)}
	for _, c := range stock.Cases {
		got, err := in.FileGenpaths(t.Context(), []codalab.FileQuery{{BundleUUID: "0x1", Genpath: c.Genpath}})
		if err != nil {
			t.Errorf("%s: %v", c.Genpath, err)
			continue
		}
		if diff := cmp.Diff(c.Want, shown(t, got[0])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.Genpath, diff)
		}
	}
}

// stockBundle is a bundle of generate.py.
type stockBundle struct {
	codalab.Bundle
	HostWorksheet *codalab.WorksheetName `json:"host_worksheet"`
}

func (b stockBundle) bundle() Bundle {
	out := Bundle{Bundle: b.Bundle, HostWorksheet: b.HostWorksheet}
	if b.OwnerID != "" {
		out.OwnerName = "user" + b.OwnerID
	}
	return out
}

func TestStockGenpaths(t *testing.T) {
	t.Parallel()
	var cases []struct {
		Bundle  stockBundle
		Genpath string
		Want    any
	}
	readStock(t, "genpaths", &cases)
	for _, c := range cases {
		b := c.Bundle.bundle()
		got := entry{uuid: b.UUID, bundle: &b}.value(c.Genpath)
		if diff := cmp.Diff(c.Want, shown(t, got)); diff != "" {
			t.Errorf("%s of %s (-want +got):\n%s", c.Genpath, b.UUID, diff)
		}
	}
}

// stockWorksheets is worksheets.json.
type stockWorksheets struct {
	Bundles []stockBundle
	Files   map[string][]byte
	Cases   []struct {
		Name, Query string
		Items       []struct {
			BundleUUID       *string `json:"bundle_uuid"`
			SubworksheetUUID *string `json:"subworksheet_uuid"`
			Value, Type      string
			ID               int64
			SortKey          int64 `json:"sort_key"`
		}
		Want map[string]any
	}
}

func (s stockWorksheets) interpreter() Interpreter {
	other := stockSheet("0x00000000000000000000000000000065", "other")
	other.OwnerName = ref("user0")
	return Interpreter{
		Read: stockFiles(s.Files),
		SearchBundles: func(_ context.Context, keywords []string) (BundleSearch, error) {
			if keywords[0] == ".count" {
				return BundleSearch{Aggregate: ref("3")}, nil
			}
			return BundleSearch{Bundles: []Bundle{s.Bundles[0].bundle(), s.Bundles[1].bundle()}}, nil
		},
		SearchWorksheets: func(context.Context, []string) ([]WorksheetInfo, error) {
			return []WorksheetInfo{other}, nil
		},
		Log: slog.New(slog.DiscardHandler),
	}
}

func ref[T any](value T) *T { return &value }

func stockSheet(uuid, name string) WorksheetInfo {
	return WorksheetInfo{OwnerID: ref("0"), Worksheet: codalab.Worksheet{
		WorksheetName: codalab.WorksheetName{UUID: uuid, Name: name}, DateCreated: "2026-11-20T08:02:45",
		DateLastModified: "2026-11-20T08:03:06", Tags: []string{"t"}, LastItemID: ref(int64(7)),
	}}
}

func TestStockWorksheets(t *testing.T) {
	t.Parallel()
	var stock stockWorksheets
	readStock(t, "worksheets", &stock)
	for _, c := range stock.Cases {
		t.Run(c.Name+"?"+c.Query, func(t *testing.T) {
			t.Parallel()
			other := stockSheet("0x00000000000000000000000000000065", "other")
			w := Worksheet{
				WorksheetInfo: stockSheet("0x00000000000000000000000000000064", "sheet"), Permission: 2,
				GroupPermissions: []GroupPermission{{
					GroupPermission: codalab.GroupPermission{GroupName: "public", Permission: 1, PermissionSpec: "read"},
					ID:              11, GroupUUID: "0x00000000000000000000000000000032",
				}},
				Bundles: map[string]Bundle{}, Worksheets: map[string]WorksheetInfo{other.UUID: other},
			}
			w.OwnerName = ref("user0")
			for _, b := range stock.Bundles {
				w.Bundles[b.UUID] = b.bundle()
			}
			for _, i := range c.Items {
				item := Item{ID: ref(i.ID), SortKey: ref(i.SortKey), Type: i.Type, Value: i.Value}
				if i.BundleUUID != nil {
					item.BundleUUID = *i.BundleUUID
				}
				if i.SubworksheetUUID != nil {
					item.SubworksheetUUID = *i.SubworksheetUUID
				}
				w.Items = append(w.Items, item)
			}
			q, err := url.ParseQuery(c.Query)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{Brief: q.Get("brief") == "1", Directive: q.Get("directive"), BundleUUIDs: q["bundle_uuid"]}
			got, err := stock.interpreter().Worksheet(t.Context(), w, o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(c.Want), withoutNoRows(shown(t, got))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// withoutNoRows removes the empty rows of blocks without a table, which CodaLab's own server leaves out (noRows).
func withoutNoRows(worksheet any) any {
	w, _ := worksheet.(map[string]any)
	blocks, _ := w["blocks"].([]any)
	for _, one := range blocks {
		b, _ := one.(map[string]any)
		if rows, ok := b["rows"].([]any); ok && len(rows) == 0 && b["mode"] != "table_block" && b["mode"] != "record_block" {
			delete(b, "rows")
		}
	}
	return worksheet
}
