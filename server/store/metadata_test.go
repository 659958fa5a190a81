package store

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// runMetadata is the metadata of a run that waits in a pack.
const runMetadata = `{"allow_failed_dependencies":false,"cpu_usage":0,"created":1764506000,"data_size":0,"description":"","docker_image":"","exclude_patterns":[],"job_handle":"16848","last_updated":1764506010,"memory_usage":0,"name":"fast-1-17","on_preemptible_worker":false,"remote":"n1","remote_history":["n1"],"request_cpus":1,"request_disk":"","request_docker_image":"","request_gpus":0,"request_memory":"2g","request_network":true,"request_priority":0,"request_queue":"packs","request_time":"","run_status":"Slurm job 16848 runs on n1 with other runs; this one waits for its turn there.","started":1764506003,"tags":["sweep=0x0123456789abcdef0123456789abcdef","x=17"],"time":0,"time_preparing":1.25,"time_system":0,"time_user":0}`

// FuzzMetadataAreReadAsByEncodingJSON: what is read is what encoding/json reads, and is written as encoding/json writes it.
func FuzzMetadataAreReadAsByEncodingJSON(f *testing.F) {
	for _, text := range []string{
		runMetadata, `{}`, `null`, `[]`, `{"a":1,}`, `{,"a":1}`, `{"a":01}`, `{"a":1e5}`, `{"a":-0}`, `{"a":-1.50}`, `{"a":.5}`, `{"a":5.}`, `{"a":+1}`, `{"a":0x1}`,
		`{"a":1_0}`, `{"a":Inf}`, `{"a":nan}`, `{"a":"\u00e9\n"}`, `{"a":"é<&>\u2028"}`, `{"a":{"b":[1,"x",null,[true]]}}`, `{"a":["x",]}`, `{"a":[,]}`, `{"a":1}x`, ` {"a": 1}`,
		"{\"a\":\"\xff\"}", "{\"a\":\"\t\"}", `{"a":1,"a":2}`, `{"a":123456789012345678901234567890}`, `{"a":"x`, `{"a"`, `{"a":1e400}`, `{"a":0.0000001}`, `{"a":-}`, `{"a":}`, `{"a":"` + "\x7f" + `"}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want codalab.Metadata
		wrong := json.Unmarshal([]byte(text), &want)
		got, err := decodeMetadata(text)
		if (err != nil) != (wrong != nil) || wrong == nil && !cmp.Equal(got, want) {
			t.Fatalf("%q is read as %v, %v; want %v, %v", text, got, err, want, wrong)
		}
		if wrong == nil {
			sameText(t, want)
		}
	})
}

func sameText(t *testing.T, m codalab.Metadata) {
	t.Helper()
	want, wrong := json.Marshal(m)
	got, err := encodeMetadata(m)
	if (err != nil) != (wrong != nil) || wrong == nil && got != string(want) {
		t.Errorf("%#v is written as %s, %v; want %s, %v", m, got, err, want, wrong)
	}
}

func TestMetadataAreWrittenAsByEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, value := range []any{
		nil, true, 7, int64(math.MinInt64), int64(math.MaxInt64), uint8(3), json.Number("1.0"), []string(nil),
		[]string{},
		[]string{"a", "<b>"},
		[]any(nil),
		[]any{nil, 1.5, "é"},
		0.0, math.Copysign(0, -1), 1e-6, 9.9e-7, 1e20, 1e21, -123456.789, 0.1 + 0.2, math.MaxFloat64, math.SmallestNonzeroFloat64, math.NaN(), math.Inf(1), func() {},
		"", "plain", "a\"b\\c", "a\x00b", "\u2028", "\xff", "\x7f", "<>&",
		map[string]any{"b": 1},
	} {
		sameText(t, codalab.Metadata{"key": value, "<é>": value})
	}
	sameText(t, nil)
	sameText(t, codalab.Metadata{})
}

// Metadata of a run need no allocations but those of the map, its texts and numbers.
func TestMetadataOfARunAreReadWithFewAllocations(t *testing.T) { //nolint:paralleltest // it counts the allocations of all goroutines
	var m codalab.Metadata
	allocated := testing.AllocsPerRun(10, func() { m, _ = decodeMetadata(runMetadata) })
	if most := float64(len(m)); len(m) != 30 || allocated > most {
		t.Errorf("%.0f allocations for %d values, at most %.0f are due", allocated, len(m), most)
	}
}

func BenchmarkMetadata(b *testing.B) {
	var m codalab.Metadata
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			m, _ = decodeMetadata(runMetadata)
		}
	})
	b.Run("decode with encoding/json", func(b *testing.B) {
		for b.Loop() {
			m = nil
			_ = json.Unmarshal([]byte(runMetadata), &m)
		}
	})
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			_, _ = encodeMetadata(m)
		}
	})
	b.Run("encode with encoding/json", func(b *testing.B) {
		for b.Loop() {
			_, _ = json.Marshal(m)
		}
	})
}
