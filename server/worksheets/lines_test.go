package worksheets

import (
	"slices"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// What a column may show is read; all of the metadata if that cannot be told.
func TestPartReadsTheMetadataThatItShows(t *testing.T) {
	t.Parallel()
	for directive, want := range map[string]string{
		"display table run":                    "",
		"schema s":                             "",
		"add uuid uuid [0:8]":                  "",
		"add acc /stats.json:acc %.2f":         "",
		"add dependencies/data":                "",
		"add request_queue":                    "request_queue",
		"add queue request_queue":              "request_queue",
		"display graph /log display_name=tags": "tags",
		"add args":                             "all",
		"add why state_details":                "all",
		"add metadata":                         "all",
		"add host_worksheet":                   "all",
		"add x_of_an_old_client":               "all",
		"add 'unclosed":                        "all",
	} {
		none := partKeys(nil)
		keys := partKeys([]store.Item{{Type: codalab.ItemMarkup, Value: "add args"}, {Type: codalab.ItemDirective, Value: directive}})
		switch {
		case want == "all" && keys != nil,
			want == "" && !slices.Equal(keys, none),
			want != "" && want != "all" && !slices.Equal(keys, append(none, want)):
			t.Errorf("%s needs %q", directive, keys)
		}
	}
}
