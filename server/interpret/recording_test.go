package interpret

import (
	"encoding/json"
	"log/slog"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// recorded is the recorded answer of CodaLab's own server to "cl print" of a worksheet with six
// uploads.
type recorded struct {
	Worksheet map[string]any
	Table     struct {
		Request, Answer struct {
			Contents []map[string]json.RawMessage
		}
	}
}

// recordedInfo is a bundle as the answer shows it.
type recordedInfo struct {
	stockBundle
	ID      int64
	SortKey int64 `json:"sort_key"`
}

func readRecording(t *testing.T) (recorded, Worksheet) {
	t.Helper()
	data, err := os.ReadFile("testdata/recording/print.json")
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	decode(t, data, &r)
	delete(r.Worksheet, "meta") // the handler adds it
	var in struct {
		Worksheet struct {
			WorksheetInfo
			Permission       int               `json:"permission"`
			GroupPermissions []GroupPermission `json:"group_permissions"`
			Blocks           []struct {
				Spec struct {
					Infos []recordedInfo `json:"bundle_infos"`
				} `json:"bundles_spec"`
			}
		}
	}
	decode(t, data, &in)
	w := Worksheet{
		WorksheetInfo: in.Worksheet.WorksheetInfo, Permission: in.Worksheet.Permission,
		GroupPermissions: in.Worksheet.GroupPermissions, Bundles: map[string]Bundle{},
	}
	for _, i := range in.Worksheet.Blocks[0].Spec.Infos {
		w.Items = append(w.Items, Item{ID: ref(i.ID), SortKey: ref(i.SortKey), Type: codalab.ItemBundle, BundleUUID: i.UUID})
		w.Bundles[i.UUID] = i.bundle()
	}
	return r, w
}

func TestRecordedWorksheet(t *testing.T) {
	t.Parallel()
	r, w := readRecording(t)
	got, err := Interpreter{Log: slog.New(slog.DiscardHandler)}.Worksheet(t.Context(), w, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(r.Worksheet), shown(t, got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRecordedTable(t *testing.T) {
	t.Parallel()
	r, _ := readRecording(t)
	got, err := Interpreter{}.TableContents(t.Context(), r.Table.Request.Contents)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(shown(t, r.Table.Answer.Contents), shown(t, got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
