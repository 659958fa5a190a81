package interpret_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/interpret"
)

// A part of a worksheet looks as it does in the whole.
func TestPartLooksAsInTheWhole(t *testing.T) {
	t.Parallel()
	const uuid = "0x00000000000000000000000000000001"
	lines := []string{
		"# a", "% schema s", "% add who name", "", "% display table s", "{" + uuid + "}", "{" + uuid + "}", "b", "{" + uuid + "}", "% display", "c",
	}
	items, mistakes, err := interpret.CheckForm(lines, interpret.Resolver{Bundle: func(spec string) (string, error) { return spec, nil }})
	if err != nil || mistakes != nil {
		t.Fatal(mistakes, err)
	}
	w := interpret.Worksheet{Items: items, Bundles: map[string]interpret.Bundle{
		uuid: {Bundle: codalab.Bundle{UUID: uuid, Type: "dataset", State: "ready", Metadata: codalab.Metadata{"name": "x", "secret": "no"}}},
	}}
	for first, want := range map[int]string{
		0:  "markup_block schema_block table_block:who markup_block table_block:uuid[0:8],name,summary[0:1024],data_size,state,description markup_block",
		6:  "table_block:who markup_block table_block:uuid[0:8],name,summary[0:1024],data_size,state,description markup_block",
		7:  "markup_block table_block:uuid[0:8],name,summary[0:1024],data_size,state,description markup_block",
		10: "markup_block",
		11: "",
	} {
		part, err := interpret.Interpreter{Log: slog.New(slog.DiscardHandler)}.Part(t.Context(), w, first)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "secret") {
			t.Errorf("from %d on: %s has all of a bundle", first, text)
		}
		var shown struct {
			Blocks []struct {
				Mode   string
				Header []string
			}
		}
		if err := json.Unmarshal(text, &shown); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range shown.Blocks {
			if b.Mode == "table_block" {
				b.Mode += ":" + strings.Join(b.Header, ",")
			}
			got = append(got, b.Mode)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("from %d on: %s instead of %s\n%s", first, text, want, part.Blocks)
		}
	}
}

// Mistakes of somebody who still writes are told with their lines, and hide none of the other lines.
func TestMistakesAreToldWithTheirLines(t *testing.T) {
	t.Parallel()
	no := func(spec string) (string, error) { return "", &interpret.UsageError{Message: "no " + spec} }
	items, mistakes, err := interpret.CheckForm([]string{"a", "{b}", "{{c}}", `% d "`, "e"}, interpret.Resolver{Bundle: no, Worksheet: no})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range items {
		got = append(got, i.Type+" "+i.Value)
	}
	if text := strings.Join(got, "|"); text != `markup a|markup {b}|markup no c: {{c}}|markup % d "|markup e` {
		t.Errorf("the items are %s", text)
	}
	got = nil
	for _, m := range mistakes {
		got = append(got, string(rune('0'+m.Line))+" "+m.Message)
	}
	if text := strings.Join(got, "|"); !strings.HasPrefix(text, "2 no b|3 no c|4 ") || len(mistakes) != 3 {
		t.Errorf("the mistakes are %s", text)
	}
}
