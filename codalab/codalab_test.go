package codalab_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestSizesAreReadAsCodaLabReadsThem(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for in, want := range map[string]int64{
		"0": 0, "17": 17, "4k": 4 << 10, "4K": 4 << 10, "300m": 300 << 20, "2g": 2 << 30, "2gb": 2 << 30, "1.5g": 3 << 29, "1t": 1 << 40,
	} {
		if got, err := codalab.ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "g", "two", "2x", "-1g", "NaN", "inf", "1e30t", "9223372036854775808"} {
		if got, err := codalab.ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", in, got)
		} else if !strings.Contains(err.Error(), "such as 2g") {
			t.Errorf("ParseSize(%q): %v does not say what is wanted", in, err)
		}
	}
}

func TestDurationsAreReadAsCodaLabReadsThem(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"0": 0, "90": 90 * time.Second, "90s": 90 * time.Second, "3m": 3 * time.Minute, "1.5h": 90 * time.Minute,
		"2d": 48 * time.Hour, "1y": 365 * 24 * time.Hour,
	} {
		if got, err := codalab.ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "h", "1w", "-1h", "1000y"} {
		if got, err := codalab.ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, got)
		}
	}
}

func TestSizesAndDurationsArePrintedForPeople(t *testing.T) {
	t.Parallel()
	for in, want := range map[int64]string{
		0: "0", 1023: "1023", 1024: "1k", 1536: "1.5k", 2 << 30: "2g", 150 << 20: "150m", 1<<40 + 1<<39: "1.5t", math.MaxInt64: "8388608t",
	} {
		if got := codalab.FormatSize(in); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[time.Duration]string{
		0: "0.0s", 1100 * time.Millisecond: "1.1s", 200 * time.Second: "3m20s", 25 * time.Hour: "1d1h",
		3 * time.Hour: "3h0m", 400 * 24 * time.Hour: "1y35d",
	} {
		if got := codalab.FormatDuration(in); got != want {
			t.Errorf("FormatDuration(%v) = %q, want %q", in, got, want)
		}
	}
}

func TestSpelledDurationsAreReadAsTheyWere(t *testing.T) {
	t.Parallel()
	for in, want := range map[time.Duration]string{
		0: "0s", 90 * time.Second: "90s", 90 * time.Minute: "90m", 36 * time.Hour: "36h", 48 * time.Hour: "2d", 400 * 24 * time.Hour: "400d",
	} {
		got := codalab.SpellDuration(in)
		if read, err := codalab.ParseDuration(got); got != want || err != nil || read != in {
			t.Errorf("SpellDuration(%v) = %q, read as %v, %v", in, got, read, err)
		}
	}
}

func TestIdentifiers(t *testing.T) {
	t.Parallel()
	id := codalab.NewUUID()
	if !codalab.IsUUID(id) || codalab.IsUUIDPrefix(id) || id == codalab.NewUUID() {
		t.Errorf("NewUUID() = %q", id)
	}
	for _, s := range []string{"0x1", id[:33]} {
		if !codalab.IsUUIDPrefix(s) || codalab.IsUUID(s) {
			t.Errorf("%q is a prefix", s)
		}
	}
	for _, s := range []string{"", "0x", "1x2", "0xG", strings.ToUpper(id), id + "0", "../" + id} {
		if codalab.IsUUID(s) || codalab.IsUUIDPrefix(s) {
			t.Errorf("%q is taken for an identifier", s)
		}
	}
	for s, want := range map[string]bool{"a": true, "_a-1.txt": true, "": false, "1a": false, "a b": false, "a/b": false} {
		if codalab.IsName(s) != want {
			t.Errorf("IsName(%q) = %v", s, !want)
		}
	}
}

func runMetadata() codalab.Metadata {
	m := codalab.Metadata{}
	for _, k := range codalab.MetadataKeys(codalab.TypeRun) {
		if !k.Generated {
			m[k.Key] = k.Default
		}
	}
	return m
}

func TestMessagesHaveTheKeysThatWorkersRead(t *testing.T) {
	t.Parallel()
	for kind, keys := range map[codalab.MessageType][]string{ // codalab/worker/worker.py: checkin
		codalab.MessageRead: {"uuid", "socket_id", "path", "read_args"}, codalab.MessageWrite: {"uuid", "subpath", "string"},
	} {
		data, err := json.Marshal(codalab.Message{Type: kind, UUID: "0x1", SocketID: 1, ReadArgs: &codalab.ReadArgs{}})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if !strings.Contains(string(data), `"`+key+`":`) {
				t.Errorf("%s: no %s in %s", kind, key, data)
			}
		}
	}
}

func TestMetadataIsRefusedInTheServersWords(t *testing.T) {
	t.Parallel()
	if err := codalab.CheckMetadata(codalab.TypeRun, runMetadata(), true); err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	withoutStore := runMetadata() // as programs make runs that know no stores
	delete(withoutStore, "store")
	if err := codalab.CheckMetadata(codalab.TypeRun, withoutStore, true); err != nil {
		t.Errorf("without an optional key: %v", err)
	}
	for name, test := range map[string]struct {
		change func(m codalab.Metadata)
		want   string
	}{
		"unknown":          {func(m codalab.Metadata) { m["x"] = "" }, "Unexpected metadata key: x"},
		"missing":          {func(m codalab.Metadata) { delete(m, "request_cpus") }, "Missing metadata key: request_cpus"},
		"text for int":     {func(m codalab.Metadata) { m["request_cpus"] = "1" }, "Metadata value for request_cpus should be of type int"},
		"half an int":      {func(m codalab.Metadata) { m["request_gpus"] = 0.5 }, "Metadata value for request_gpus should be of type int"},
		"less than no CPU": {func(m codalab.Metadata) { m["request_cpus"] = -1 }, "Metadata value for request_cpus should be at least 0, was -1"},
		"fewer GPUs":       {func(m codalab.Metadata) { m["request_gpus"] = -1 }, "Metadata value for request_gpus should be at least 0, was -1"},
		"mixed list":       {func(m codalab.Metadata) { m["tags"] = []any{"a", 1.0} }, "Metadata value for tags should be of type list"},
		"size":             {func(m codalab.Metadata) { m["request_memory"] = "lots" }, `invalid size "lots"`},
		"time":             {func(m codalab.Metadata) { m["request_time"] = "soon" }, `invalid time "soon"`},
	} {
		m := runMetadata()
		test.change(m)
		if err := codalab.CheckMetadata(codalab.TypeRun, m, true); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	emptied := codalab.Metadata{"description": nil, "request_memory": nil}
	if err := codalab.CheckMetadata(codalab.TypeRun, emptied, false); err != nil || emptied.String("request_memory") != "2g" {
		t.Errorf("null means the default: %v, %v", emptied, err)
	}
	if err := codalab.CheckMetadata(codalab.TypeRun, codalab.Metadata{"name": "n"}, false); err != nil {
		t.Errorf("an edit of one key: %v", err)
	}
	if err := codalab.CheckMetadata(codalab.TypeRun, codalab.Metadata{"request_priority": -1, "exitcode": -1}, false); err != nil {
		t.Errorf("numbers that may be negative: %v", err)
	}
}

func TestMetadataReadsWhatTheWireCarries(t *testing.T) {
	t.Parallel()
	var m codalab.Metadata
	if err := json.Unmarshal([]byte(`{"n": 3, "f": 1.5, "b": true, "s": "x", "l": ["a", "b"], "created": 1795161770}`), &m); err != nil {
		t.Fatal(err)
	}
	if m.Int("n") != 3 || m.Float("f") != 1.5 || m.Float("n") != 3 || !m.Bool("b") || m.String("s") != "x" || !m.Has("n") {
		t.Errorf("read %v", m)
	}
	if diff := cmp.Diff([]string{"a", "b"}, m.Strings("l")); diff != "" {
		t.Error(diff)
	}
	if got := m.Time("created"); got.Unix() != 1795161770 {
		t.Errorf("created %v", got)
	}
	if m.Int("s") != 0 || m.String("n") != "" || m.Strings("s") != nil || m.Bool("none") || !m.Time("none").IsZero() {
		t.Error("a value of another type is not nothing")
	}
}

func TestDocumentsOfOneAndOfMany(t *testing.T) {
	t.Parallel()
	o := codalab.NewObject("bundles", "0x1", map[string]any{"state": "ready"})
	o.Relationships = map[string]codalab.Relationship{
		"owner": codalab.ToOne("users", "0"), "none": codalab.ToOne("users", ""), "children": codalab.ToMany("bundles", []string{"0x2", "0x3"}),
	}
	for _, d := range []codalab.Document{codalab.NewDocument(o), codalab.NewDocument([]codalab.Object{o})} {
		objects, err := d.Objects()
		if err != nil || len(objects) != 1 {
			t.Fatalf("%v, %v", objects, err)
		}
		got := objects[0]
		var bundle codalab.Bundle
		if err := got.Decode(&bundle); err != nil || bundle.State != codalab.StateReady {
			t.Errorf("decoded %v, %v", bundle, err)
		}
		if link, ok := got.Relationships["owner"].Link(); !ok || link.ID != "0" {
			t.Errorf("owner %v, %v", link, ok)
		}
		if _, ok := got.Relationships["none"].Link(); ok {
			t.Error("null is a link")
		}
		if links := got.Relationships["children"].Links(); len(links) != 2 || links[1].ID != "0x3" {
			t.Errorf("children %v", links)
		}
	}
	if empty := codalab.NewDocument[[]codalab.Object](nil); string(empty.Data) != "[]" {
		t.Errorf("an empty list is %s", empty.Data)
	}
}

func TestProfileTimesThatHaveNotComeAreNull(t *testing.T) {
	t.Parallel()
	start := time.Unix(100, 500_000_000)
	for want, times := range map[string]codalab.StageTimes{
		`{"start":null,"end":null,"elapsed":null}`:  codalab.NewStageTimes(time.Time{}, time.Time{}),
		`{"start":100.5,"end":null,"elapsed":null}`: codalab.NewStageTimes(start, time.Time{}),
		`{"start":100.5,"end":102.5,"elapsed":2}`:   codalab.NewStageTimes(start, start.Add(2*time.Second)),
	} {
		got, err := json.Marshal(times)
		if err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}

func TestErrorsSayWhetherToTryAgain(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{0: true, 400: false, 401: false, 403: false, 404: false, 408: true, 429: true, 500: true, 503: true} {
		if got := (&codalab.Error{Status: status}).Transient(); got != want {
			t.Errorf("status %d: transient %v", status, got)
		}
	}
	if !(&codalab.Error{Status: 404, Later: true}).Transient() {
		t.Error("a refusal for now is not transient")
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                             "",
		" \n":                          "",
		"open /data: no such file":     "Open /data: no such file.",
		"sbatch: error:\n  no account": "Sbatch: error: no account.",
		"élan":                         "Élan.",
		"The disk is full.":            "The disk is full.",
	} {
		if got := codalab.Sentence(text); got != want {
			t.Errorf("Sentence(%q) = %q, not %q", text, got, want)
		}
	}
}
