package codalab_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// recordedMessages are answers of CodaLab's own server to check-ins, a line each.
func recordedMessages(tb testing.TB) []string {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", "codalab-1.7.3", "checkin-answers.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	var lines []string
	for in := bufio.NewScanner(f); in.Scan(); {
		lines = append(lines, in.Text())
	}
	return lines
}

func TestRecordedAnswersAreReadWhole(t *testing.T) {
	t.Parallel()
	var types []codalab.MessageType
	var requests []codalab.Resources
	for _, line := range recordedMessages(t) {
		messages, unread, err := codalab.ParseMessages([]byte(line))
		if err != nil || len(unread) > 0 {
			t.Errorf("%s: %v, %v", line, unread, err)
		}
		for _, m := range messages {
			types = append(types, m.Type)
			if m.Type != codalab.MessageRun {
				continue
			}
			requests = append(requests, *m.Resources)
			if m.Bundle.Command == "" || m.Bundle.Metadata.Int("created") < 1_795_161_871 {
				t.Errorf("read %+v", m.Bundle)
			}
		}
	}
	if diff := cmp.Diff([]codalab.MessageType{"run", "write", "read", "read", "mark_finalized", "kill", "run", "netcat", "netcat", "run"}, types); diff != "" {
		t.Error(diff)
	}
	common := codalab.Resources{CPUs: 1, ImageReference: "codalab/default-cpu:latest", Memory: 2 << 30, Network: true, Tag: "mannrec"}
	floats, nan := common, common
	floats.Time, floats.Disk = 60, 1_610_612_736
	nan.Invalid = `The server sent "NaN" for --request-time, which is not between 0 and 3153600000.`
	want := []codalab.Resources{
		{CPUs: 1, ImageReference: "codalab/default-cpu:latest", Memory: 100 << 20, Disk: 10 << 20, Network: true, Tag: "tag=rec"}, floats, nan,
	}
	if diff := cmp.Diff(want, requests); diff != "" {
		t.Error(diff)
	}
}

func TestAnswersToCheckInsInAllTheirForms(t *testing.T) {
	t.Parallel()
	kill := codalab.Message{Type: codalab.MessageKill, UUID: "0x1"}
	for body, want := range map[string][]codalab.Message{
		`[null]`: nil, `[]`: nil, `null`: nil,
		`[{"type":"kill","uuid":"0x1"},null]`:                         {kill},
		`[{"type":"kill","uuid":"0x1","kill_message":null}]`:          {kill},
		`[{"type":"kill","uuid":"0x1","later":{"a":[1,{}]}}]`:         {kill},
		`{"type":"mark_finalized","uuid":"0x1"}`:                      {{Type: codalab.MessageMarkFinalized, UUID: "0x1"}},
		`[{"type":"write","uuid":"0x1","subpath":"a","string":null}]`: {{Type: codalab.MessageWrite, UUID: "0x1", Subpath: "a"}},
		`[{"type":"read","uuid":"0x1","path":null,"socket_id":"3","read_args":null}]`: {
			{Type: codalab.MessageRead, UUID: "0x1", SocketID: 3},
		},
		`[{"type":"read","uuid":"0x1","path":"p","socket_id":4.0,"read_args":{"type":"read_file_section","offset":1.0,"length":"7","depth":null}}]`: {
			{Type: codalab.MessageRead, UUID: "0x1", Path: "p", SocketID: 4, ReadArgs: &codalab.ReadArgs{Type: codalab.ReadFileSection, Offset: 1, Length: 7}},
		},
		`[{"type":"run","bundle":{"uuid":"0x1","command":null,"dependencies":null,"args":null,"metadata":null,"location":null},"resources":null}]`: {
			{Type: codalab.MessageRun, Bundle: &codalab.RunBundle{UUID: "0x1"}},
		},
	} {
		messages, unread, err := codalab.ParseMessages([]byte(body))
		if diff := cmp.Diff(want, messages); diff != "" || err != nil || len(unread) > 0 {
			t.Errorf("%s: %v, %v\n%s", body, unread, err, diff)
		}
	}
	if _, _, err := codalab.ParseMessages([]byte(`<html>`)); err == nil {
		t.Error("a page was read as messages")
	}
}

func TestMessageThatCannotBeReadTakesNoOtherWithIt(t *testing.T) {
	t.Parallel()
	kill := `{"type":"kill","uuid":"0x2"}`
	for element, want := range map[string]string{
		`7`:                       `  decode message: json: cannot unmarshal number`,
		`"kill"`:                  `  decode message: json: cannot unmarshal string`,
		`[]`:                      `  decode message: json: cannot unmarshal array`,
		`{}`:                      `  decode message: it has no type`,
		`{"type":7,"uuid":"0x1"}`: ` 0x1 decode message: json: cannot unmarshal number`,
		`{"type":"kill"}`:         `kill  decode message: it names no bundle`,
		`{"type":"run"}`:          `run  decode message: it names no bundle`,
		`{"type":"run","bundle":{"uuid":"0x1","command":["a"]}}`:                       `run 0x1 decode message: json: cannot unmarshal array`,
		`{"type":"read","uuid":"0x1","socket_id":"three"}`:                             `read 0x1 decode message: socket_id is "three", which is no whole number`,
		`{"type":"read","uuid":"0x1","socket_id":3,"read_args":{"offset":Infinity}}`:   `read 0x1 decode message: offset is "Infinity", which is no whole number`,
		`{"type":"read","uuid":"0x1","socket_id":3,"read_args":{"depth":{"a":"NaN"}}}`: `read 0x1 decode message: depth is "{\"a\":\"NaN\"}", which`,
		`{"type":"netcurl","uuid":"0x1","port":"a"}`:                                   `netcurl 0x1 unknown`,
		`{"type":"dance"}`: `dance  unknown`,
	} {
		messages, unread, err := codalab.ParseMessages([]byte("[" + kill + "," + element + ",null," + kill + "]"))
		if err != nil || len(messages) != 2 || len(unread) != 1 {
			t.Errorf("%s: %v, %v, %v", element, messages, unread, err)
			continue
		}
		words := "unknown"
		if unread[0].Err != nil {
			words = unread[0].Err.Error()
		}
		if got := string(unread[0].Type) + " " + unread[0].UUID + " " + words; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", element, got, want)
		}
	}
}

// The stock server's quotas are floats, so the remaining quota is one
// (codalab/server/bundle_manager.py: _compute_request_time).
func TestResourcesInAllFormsOfNumbers(t *testing.T) {
	t.Parallel()
	left := int64(3)
	for written, want := range map[string]codalab.Resources{
		`{"cpus":2,"gpus":1,"time":60,"memory":1024,"disk":7}`:                      {CPUs: 2, GPUs: 1, Time: 60, Memory: 1024, Disk: 7},
		`{"cpus":2.0,"gpus":1.0,"time":60.0,"memory":1.024e3,"disk":7.9}`:           {CPUs: 2, GPUs: 1, Time: 60, Memory: 1024, Disk: 7},
		`{"cpus":"2","gpus":"1","time":"60.0","memory":" 1024 ","disk":"7"}`:        {CPUs: 2, GPUs: 1, Time: 60, Memory: 1024, Disk: 7},
		`{"cpus":null,"gpus":null,"time":null,"memory":null,"disk":"","tag":null}`:  {},
		`{"runs_left":3.0,"network":true,"tag":"x","docker_image":null,"later":[]}`: {RunsLeft: &left, Network: true, Tag: "x"},
		`{"cpus":1,"time":3153600000,"memory":1152921504606846976}`:                 {CPUs: 1, Time: codalab.MaxSeconds, Memory: codalab.MaxBytes},
	} {
		var got codalab.Resources
		if err := json.Unmarshal([]byte(written), &got); err != nil {
			t.Errorf("%s: %v", written, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", written, diff)
		}
	}
}

func TestNumbersOutOfRangeComeWithASentence(t *testing.T) {
	t.Parallel()
	for resources, want := range map[string]string{
		`{"cpus":1,"time":NaN}`:               `The server sent "NaN" for --request-time, which is not between 0 and 3153600000.`,
		`{"time":-Infinity}`:                  `The server sent "-Infinity" for --request-time, which`,
		`{"memory":1e300}`:                    `The server sent "1e300" for --request-memory, which`,
		`{"memory":9223372036854775807}`:      `The server sent 9223372036854775807 for --request-memory, which`,
		`{"cpus":"many"}`:                     `The server sent "many" for --request-cpus, which`,
		`{"gpus":true}`:                       `The server sent "true" for --request-gpus, which`,
		`{"cpus":-1}`:                         `The server sent -1 for --request-cpus, which is not between 0 and 2147483648. A server sends a negative number`,
		`{"time":-0.5,"disk":-2,"cpus":1e99}`: `The server sent "1e99" for --request-cpus`,
		`{"network":"perhaps"}`:               `The server's request cannot be read: json: cannot unmarshal string`,
		`"lots"`:                              `The server's request cannot be read: json: cannot unmarshal string`,
	} {
		body := `[{"type":"run","bundle":{"uuid":"0x1","command":"NaN \" NaN"},"resources":` + resources + `},{"type":"kill","uuid":"0x2"}]`
		messages, unread, err := codalab.ParseMessages([]byte(body))
		if err != nil || len(unread) > 0 || len(messages) != 2 {
			t.Errorf("%s: %v, %v, %v", resources, messages, unread, err)
			continue
		}
		m := messages[0]
		if !strings.HasPrefix(m.Resources.Invalid, want) {
			t.Errorf("%s: %q, want %q", resources, m.Resources.Invalid, want)
		}
		if m.Bundle.Command != `NaN " NaN` {
			t.Errorf("the command became %q", m.Bundle.Command)
		}
		kept, err := json.Marshal(m.Resources) // as a ledger does
		var again codalab.Resources
		if err != nil || json.Unmarshal(kept, &again) != nil || again != *m.Resources {
			t.Errorf("%s became %+v on its way through a ledger", kept, again)
		}
	}
}

func TestMetadataNumbersInAllForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		whole int64
		float float64
	}{
		{2.0, 2, 2},
		{-2.5, -2, -2.5},
		{"3", 3, 3},
		{"3.5", 3, 3.5},
		{json.Number("4.5"), 4, 4.5},
		{int64(5), 5, 5},
		{nil, 0, 0},
		{"high", 0, 0},
		{1e300, 0, 1e300},
	} {
		m := codalab.Metadata{"request_priority": c.value}
		if m.Int("request_priority") != c.whole || m.Float("request_priority") != c.float {
			t.Errorf("%v: %d, %v", c.value, m.Int("request_priority"), m.Float("request_priority"))
		}
	}
}

// An answer that is JSON never loses an element, and a bad message does not damage a good
// one.
func FuzzParseMessages(f *testing.F) {
	for _, line := range recordedMessages(f) {
		f.Add([]byte(strings.TrimSuffix(strings.TrimPrefix(line, "["), "]")))
	}
	f.Add([]byte(`{"type":"run","bundle":{"uuid":"0x1"},"resources":{"time":NaN,"cpus":"1","memory":1e300,"runs_left":-Infinity}}`))
	f.Add([]byte(`{"type":"read","uuid":"0x1","socket_id":1.5,"read_args":{"depth":"2"}}`))
	f.Add([]byte(`"NaN\\"`))
	f.Fuzz(func(t *testing.T, element []byte) {
		_, _, _ = codalab.ParseMessages(element)
		if !json.Valid(element) {
			return
		}
		body := `[{"type":"kill","uuid":"0x1"},` + string(element) + `,{"type":"kill","uuid":"0x2"}]`
		messages, unread, err := codalab.ParseMessages([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		want := 3
		if strings.TrimSpace(string(element)) == "null" {
			want = 2
		}
		if len(messages)+len(unread) != want || messages[0].UUID != "0x1" || messages[len(messages)-1].UUID != "0x2" {
			t.Errorf("%q: %v, %v", element, messages, unread)
		}
		for _, m := range messages {
			if r := m.Resources; r != nil && (r.CPUs|r.GPUs|r.Time|r.Memory|r.Disk < 0 || r.Time > codalab.MaxSeconds || max(r.Memory, r.Disk) > codalab.MaxBytes) {
				t.Errorf("%q asks for %+v", element, *r)
			}
		}
	})
}
