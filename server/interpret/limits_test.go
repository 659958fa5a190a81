package interpret

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// answerOf is the JSON of a worksheet with these lines on smallSite.
func answerOf(t *testing.T, in Interpreter, w Worksheet, lines ...string) string {
	t.Helper()
	items, err := ParseForm(lines, stockResolver())
	if err != nil {
		t.Fatal(err)
	}
	w.Items = items
	got, err := in.Worksheet(t.Context(), w, Options{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func wantText(t *testing.T, answer, want string) {
	t.Helper()
	if !strings.Contains(answer, want) {
		t.Errorf("the answer lacks %q: %.2000s", want, answer)
	}
}

func TestSchemaThatAddsItselfStaysSmall(t *testing.T) {
	t.Parallel()
	in, w := smallSite()
	lines := []string{"% schema s", "% add name"}
	for range 100 {
		lines = append(lines, "% addschema s")
	}
	wantText(t, answerOf(t, in, w, lines...), "more than 256 columns")
	wide := "% display table" + strings.Repeat(" default", 50)
	wantText(t, answerOf(t, in, w, wide, "{b1}"), "more than 256 columns")
}

func TestManyLargeCellsAreRefused(t *testing.T) {
	t.Parallel()
	in, w := smallSite()
	b := w.Bundles["0x00000000000000000000000000000001"]
	b.Metadata["description"] = strings.Repeat("x", 1<<20)
	lines := []string{}
	for range 100 {
		lines = append(lines, "{b1}")
	}
	answer := answerOf(t, in, w, lines...)
	wantText(t, answer, "the worksheet shows more than 64 MiB")
	if len(answer) > 2*maxShown {
		t.Errorf("the answer has %d bytes", len(answer))
	}
}

func TestManyLargeFilesAreRefused(t *testing.T) {
	t.Parallel()
	in, w := smallSite()
	reads := int64(0)
	in.Read = func(_ context.Context, _, _ string, limit int64) ([]byte, error) {
		reads += limit
		return []byte(strings.Repeat("line\n", int(limit)/5)), nil
	}
	lines := []string{"% display contents /f maxlines=1000000"}
	for range 20 {
		lines = append(lines, "{b1}")
	}
	wantText(t, answerOf(t, in, w, lines...), "64 MiB to read")
	if reads > maxRead+maxHeadLines*maxLineBytes+1 {
		t.Errorf("read %d bytes", reads)
	}
	wantText(t, answerOf(t, in, w, "% display contents /f maxlines=-1", "{b1}"), "at least 1")
}

func TestLargeImageIsRefused(t *testing.T) {
	t.Parallel()
	in, w := smallSite()
	in.Read = func(_ context.Context, _, _ string, limit int64) ([]byte, error) { return make([]byte, limit+5), nil }
	wantText(t, answerOf(t, in, w, "% display image /f", "{b1}"), "larger than 16 MiB")
}

func TestFilesShownOftenAreRefused(t *testing.T) {
	t.Parallel()
	in, _ := smallSite()
	in.Read = func(context.Context, string, string, int64) ([]byte, error) {
		return []byte(`"` + strings.Repeat("x", 5<<20) + `"`), nil
	}
	queries := make([]codalab.FileQuery, 20)
	for i := range queries {
		queries[i] = codalab.FileQuery{BundleUUID: "0x1", Genpath: "/f"}
	}
	var refused *UsageError
	if _, err := in.FileGenpaths(t.Context(), queries); !errors.As(err, &refused) {
		t.Errorf("error %v, want a *UsageError", err)
	}
}

func TestSearchesAreBounded(t *testing.T) {
	t.Parallel()
	in, w := smallSite()
	searches := 0
	in.SearchBundles = func(context.Context, []string) (BundleSearch, error) {
		searches++
		return BundleSearch{Bundles: make([]Bundle, 2*maxFound)}, nil
	}
	lines := []string{}
	for range 2 * maxSearches {
		lines = append(lines, "% search x", "")
	}
	wantText(t, answerOf(t, in, w, lines...), "too many searches")
	if searches != 1 {
		t.Errorf("%d searches after the first found too much", searches)
	}
}

func TestHostilePostFunctionsKeepTheValue(t *testing.T) {
	t.Parallel()
	growing := strings.Repeat("s/a/aaaaaaaaaa | ", maxSteps-1) + "str"
	for _, c := range []struct{ spec, value, want string }{
		{"%999999999d", "1", "1"},
		{"%.999999999f", "1", "1"},
		{"%99999999999999999999f", "1", "1"},
		{"s/" + strings.Repeat("(", 300) + "/x", "a", "a"},
		{"s/((a{100}){100}){100}/x", "a", "a"},
		{"s/(?=a)b/x", "ab", "ab"},
		{"[99999999999999999999:]", "ab", "ab"},
		{strings.Repeat("str | ", 100) + "str", "a", "<invalid function: too long>"},
		{"s/a/" + strings.Repeat("b", maxPost), "a", "<invalid function: too long>"},
	} {
		if got := parsePost(c.spec).apply(c.value); got != c.want {
			t.Errorf("%.40q of %q is %.40q, want %q", c.spec, c.value, got, c.want)
		}
	}
	if got := size(parsePost(growing).apply("a")); got > 2*maxText {
		t.Errorf("a growing post-function made %d bytes", got)
	}
}

func TestHostileYAMLIsPlainText(t *testing.T) {
	t.Parallel()
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		fmt.Fprintf(&bomb, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i)
	}
	for _, text := range []string{
		bomb.String(), "a: &x [*x]\n", "&x <<: *x\n", "a: &x\n  <<: [*x]\n", strings.Repeat("[", 5000), strings.Repeat("- ", 500) + "x",
		"x: y\n" + strings.Repeat("# comment\n", maxYAML/10+1), "a: !!binary aGk=\n", "[1, 2]: x\n",
	} {
		if value, err := parseYAML(text); err == nil {
			t.Errorf("%.40q is %.100v", text, value)
		}
	}
}

func TestCancelledRequestsStop(t *testing.T) {
	t.Parallel()
	in, w := smallSite()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Items = []Item{{Type: codalab.ItemBundle, BundleUUID: "0x00000000000000000000000000000001"}}
	if _, err := in.Worksheet(ctx, w, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Worksheet: %v", err)
	}
	if _, err := in.FileGenpaths(ctx, []codalab.FileQuery{{Genpath: "/f"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("FileGenpaths: %v", err)
	}
}
