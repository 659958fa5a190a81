package sbatch

import (
	"encoding/json"
	"testing"
)

func TestTaskHasTheIDThatSlurmPrints(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]JobID{
		"1": 1, "123": 123, "4294967294": 4294967294,
		"123_0": JobID(123).Task(0), "123_4": JobID(123).Task(4), "4294967294_4000000": JobID(4294967294).Task(4000000),
	} {
		got, err := ParseJobID(text)
		if err != nil || got != want || got.String() != text || got <= 0 {
			t.Errorf("%s is read as %d, %v; want %d, which is %s", text, got, err, want, want)
		}
	}
	array, index, ok := JobID(123).Task(4).ArrayTask()
	if array != 123 || index != 4 || !ok {
		t.Errorf("123_4 is task %d of %d, %v", index, array, ok)
	}
	if array, _, ok = JobID(123).ArrayTask(); array != 123 || ok {
		t.Errorf("a single job is a task of %d", array)
	}
	if again := array.Task(7).Task(8); again != array.Task(8) {
		t.Errorf("another task of the same array is %s", again)
	}
	for _, text := range []string{"", "0", "-1", "+1", "01", "1_", "_1", "1_-1", "1_01", "1_2_3", "1_[2]", "1_2.batch", "1.0", "1 ", "4294967296", "1_99999999999", "0_1", "x"} {
		if id, err := ParseJobID(text); err == nil {
			t.Errorf("%q is read as %s", text, id)
		}
	}
}

// Ledgers and records of earlier versions have numbers.
func TestJobIDInJSONIsANumberOrATasksText(t *testing.T) {
	t.Parallel()
	type record struct {
		Job   JobID `json:"job,omitempty"`
		Other JobID `json:"other"`
	}
	for text, want := range map[string]record{
		`{"other":0}`:                      {},
		`{"job":123,"other":4294967294}`:   {123, 4294967294},
		`{"job":"123_4","other":"7_0"}`:    {JobID(123).Task(4), JobID(7).Task(0)},
		`{"job":123,"other":"1_99999999"}`: {123, JobID(1).Task(99999999)},
	} {
		var got record
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is read as %+v, %v", text, got, err)
		}
		if written, err := json.Marshal(want); err != nil || string(written) != text {
			t.Errorf("%+v is written as %s, %v; want %s", want, written, err, text)
		}
	}
	var kept JobID = 5
	if err := json.Unmarshal([]byte(`null`), &kept); err != nil || kept != 5 {
		t.Errorf("null: %d, %v", kept, err)
	}
	for _, text := range []string{`-1`, `1.5`, `1e3`, `99999999999`, `"x"`, `""`, `"0"`, `true`, `[1]`, `"1_\u0032"`} {
		if err := json.Unmarshal([]byte(text), &kept); err == nil {
			t.Errorf("%s is read as %d", text, kept)
		}
	}
}

func FuzzJobID(f *testing.F) {
	f.Add("123")
	f.Add("123_4")
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := ParseJobID(text); err == nil && (id <= 0 || id.String() != text) {
			t.Errorf("%q is read as %d, which is %s", text, id, id)
		}
	})
}
