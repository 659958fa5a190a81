package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/export"
)

// TestOnlyTheSameUploadGoesOn: somebody else's upload, or one of another bundle, does not get the bytes of an archive.
func TestOnlyTheSameUploadGoesOn(t *testing.T) {
	t.Parallel()
	command := "date"
	inputs := []codalab.Dependency{{ChildPath: "a", ParentUUID: "0x1"}, {ChildPath: "b", ParentUUID: "0x2", ParentPath: "p"}}
	archived := codalab.Bundle{Type: codalab.TypeRun, Command: &command, Metadata: codalab.Metadata{"name": "r"}, Dependencies: inputs}
	for name, test := range map[string]struct {
		change func(*codalab.Bundle)
		same   bool
	}{
		"the same":      {func(*codalab.Bundle) {}, true},
		"another order": {func(b *codalab.Bundle) { b.Dependencies = []codalab.Dependency{inputs[1], inputs[0]} }, true},
		"names of parents": {func(b *codalab.Bundle) {
			b.Dependencies = []codalab.Dependency{inputs[0], inputs[1]}
			b.Dependencies[0].ParentName = "x"
		}, true},
		"another owner":   {func(b *codalab.Bundle) { b.OwnerID = "2" }, false},
		"another type":    {func(b *codalab.Bundle) { b.Type = codalab.TypeDataset }, false},
		"another name":    {func(b *codalab.Bundle) { b.Metadata = codalab.Metadata{"name": "s"} }, false},
		"another command": {func(b *codalab.Bundle) { b.Command = nil }, false},
		"fewer inputs":    {func(b *codalab.Bundle) { b.Dependencies = inputs[:1] }, false},
	} {
		there := codalab.Bundle{OwnerID: "1", Type: archived.Type, Command: &command, Metadata: archived.Metadata, Dependencies: inputs}
		test.change(&there)
		if sameUpload(there, archived, "1") != test.same {
			t.Errorf("%s: %t", name, !test.same)
		}
	}
}

// TestTakenUUIDsAreLeftOut: which words a server has for it does not matter, and CodaLab's own shows a bundle that is not shared
// as one of type private.
func TestTakenUUIDsAreLeftOut(t *testing.T) {
	t.Parallel()
	private := func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		_, uuid, _ := strings.Cut(r.URL.Path, "/bundles/")
		object := codalab.NewObject("bundles", uuid, codalab.Bundle{UUID: uuid, Type: codalab.TypePrivate})
		_ = json.NewEncoder(w).Encode(map[string]any{"data": object})
	}
	broken := func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		_, uuid, _ := strings.Cut(r.URL.Path, "/bundles/")
		object := codalab.NewObject("bundles", uuid, codalab.Bundle{
			UUID: uuid, Type: codalab.TypeDataset, State: codalab.StateFailed,
			Metadata: codalab.Metadata{"name": "d", "failure_message": "Upload failed: Invalid archive upload: failed to unpack archive: No more data after: None"},
		})
		_ = json.NewEncoder(w).Encode(map[string]any{"data": object})
	}
	for name, test := range map[string]struct {
		method, path string
		handle       func(w http.ResponseWriter, r *http.Request, next http.Handler)
		stock        bool
		want         string
	}{
		"deleted":                   {http.MethodPost, "/rest/bundles", answer(http.StatusConflict, "in other words"), false, "deleted there, or is not shared with you"},
		"deleted, at an old server": {http.MethodPost, "/rest/bundles", answer(http.StatusBadRequest, "Bundle 0x1 exists already"), false, "deleted there, or is not shared with you"},
		"broken":                    {http.MethodGet, "/rest/bundles/0x", broken, false, "an earlier upload of it has failed there, and cl-server gives no uuid out twice: --new-uuids"},
		"broken, at CodaLab's own":  {http.MethodGet, "/rest/bundles/0x", broken, true, "an earlier upload of it has failed there; cl rm 0x"},
		"not shared":                {http.MethodGet, "/rest/bundles/0x", private, false, "it is on the server, and not shared with you"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := newTransferSite(t, 1<<40), newTransferSite(t, 1<<40)
			from.mustRun(t, "new", "w")
			from.mustRun(t, "work", "w")
			from.mustRun(t, "upload", "-c", "text", "-n", "d")
			archive := filepath.Join(from.dir, "w.zip")
			from.mustRun(t, "export", "-o", archive)
			to.on(test.method, test.path, test.handle)
			if test.stock {
				to.on(http.MethodGet, "/rest/queues", answer(http.StatusNotFound, "Not found: '/rest/queues'"))
			}
			r := to.ends(t, 1, "import", archive)
			wantText(t, "the warning", r.stderr, "is left out: ")
			wantText(t, "the warning", r.stderr, test.want)
			to.heal()
			wantText(t, "the worksheet", to.mustRun(t, "print", "-r", "w"), "")
		})
	}
}

// TestNewUUIDsMakeCopiesThatBelongTogether: also after an interruption, and on the server that has the originals.
func TestNewUUIDsMakeCopiesThatBelongTogether(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	s.mustRun(t, "new", "w")
	s.mustRun(t, "work", "w")
	input := strings.TrimSpace(s.mustRun(t, "upload", "-c", "some text", "-n", "a", "--tags", "t"))
	made := strings.TrimSpace(s.mustRun(t, "make", "x:a", "-n", "m"))
	s.mustRun(t, "wait", "m")
	s.mustRun(t, "add", "text", "[m](/bundles/"+made+")")
	archive := filepath.Join(s.dir, "w.zip")
	s.mustRun(t, "export", "-o", archive)
	s.on(http.MethodPut, "/contents/blob/", once(func(_ http.ResponseWriter, _ *http.Request, _ http.Handler) { panic(http.ErrAbortHandler) }))
	if r := s.cl(t.Context(), nil, "import", "--new-uuids", "-w", "copy", archive); r.err == nil {
		t.Error("an interrupted import succeeds")
	}
	s.mustRun(t, "import", "--new-uuids", "-w", "copy", archive)
	sheet, err := s.api.FindWorksheet(t.Context(), "", "copy")
	if err == nil {
		sheet, err = s.api.WorksheetItems(t.Context(), sheet.UUID)
	}
	if err != nil || len(sheet.Items) != 3 || sheet.Items[0].Bundle == nil || sheet.Items[1].Bundle == nil {
		t.Fatalf("%+v, %v", sheet, err)
	}
	a, m := sheet.Items[0].Bundle, sheet.Items[1].Bundle
	if a.UUID == input || m.UUID == made || len(m.Dependencies) != 1 || m.Dependencies[0].ParentUUID != a.UUID {
		t.Errorf("%s and %s are copied to %+v and %+v", input, made, a, m)
	}
	if text := sheet.Items[2].Value; text != "[m](/bundles/"+m.UUID+")" {
		t.Errorf("the text is %q", text)
	}
	if got := strings.Join(a.Metadata.Strings("tags"), " "); got != "copy-of="+input+" t" || a.State != codalab.StateReady {
		t.Errorf("the copy has tags %q and is %s", got, a.State)
	}
	wantText(t, "the provenance", s.mustRun(t, "info", "--provenance", a.UUID), `"isBasedOn": "`+input+`"`)
	wantText(t, "the contents", s.mustRun(t, "cat", m.UUID+"/x"), "some text")
	all, _, err := s.api.SearchBundles(t.Context(), "", []string{".mine"})
	if err != nil || len(all) != 4 {
		t.Errorf("there are %d bundles, %v", len(all), err)
	}
}

// TestItemsGoInParts: no request has more items or text than a server takes, and all go in their order.
func TestItemsGoInParts(t *testing.T) {
	t.Parallel()
	text := func(n, size int) (items []client.Item) {
		for range n {
			items = append(items, client.Item{WorksheetItem: codalab.WorksheetItem{Type: codalab.ItemMarkup, Value: strings.Repeat("a", size)}})
		}
		return items
	}
	for name, test := range map[string]struct {
		items []client.Item
		want  []int
	}{
		"none":       {nil, nil},
		"few":        {text(2, 1), []int{2}},
		"many":       {text(10_001, 1), []int{5_000, 5_000, 1}},
		"long ones":  {text(5, 400<<10), []int{2, 2, 1}},
		"a huge one": {append(text(1, 3<<20), text(2, 1)...), []int{1, 2}},
	} {
		var got []int
		total := 0
		for _, part := range itemParts(test.items) {
			got = append(got, len(part))
			total += len(part)
		}
		if len(got) != len(test.want) || total != len(test.items) {
			t.Errorf("%s: %v instead of %v", name, got, test.want)
			continue
		}
		for i := range got {
			if got[i] != test.want[i] {
				t.Errorf("%s: %v instead of %v", name, got, test.want)
			}
		}
	}
}

// TestWorksheetsOfAnEarlierImportGoOn: one that an import has made in part is completed, and any other is left alone.
func TestWorksheetsOfAnEarlierImportGoOn(t *testing.T) {
	t.Parallel()
	a := &export.Archive{Description: export.Description{Items: []export.Item{
		{Type: codalab.ItemMarkup, Value: "x"},
		{Type: codalab.ItemBundle, Bundle: "0x1"},
		{Type: codalab.ItemMarkup, Value: "x"},
		{Type: codalab.ItemWorksheet, Worksheet: &codalab.WorksheetName{UUID: "0x2"}},
	}}}
	text := func(value string) client.Item {
		return client.Item{WorksheetItem: codalab.WorksheetItem{Type: codalab.ItemMarkup, Value: value}}
	}
	there := client.Item{WorksheetItem: codalab.WorksheetItem{Type: codalab.ItemWorksheet}, Worksheet: &client.Worksheet{}}
	there.Worksheet.UUID = "0x2"
	for name, test := range map[string]struct {
		items []client.Item
		fits  bool
	}{
		"none":             {nil, true},
		"all":              {[]client.Item{text("x"), bundleItem("0x1"), text("x"), there}, true},
		"the beginning":    {[]client.Item{text("x"), bundleItem("0x1")}, true},
		"all but a bundle": {[]client.Item{text("x"), text("x"), there}, true},
		"another text":     {[]client.Item{text("y")}, false},
		"a text too much":  {[]client.Item{text("x"), text("x"), text("x")}, false},
		"another order":    {[]client.Item{there, text("x")}, false},
	} {
		if err := checkItems(client.Worksheet{Items: test.items}, a); (err == nil) != test.fits {
			t.Errorf("%s: %v", name, err)
		}
	}
}
