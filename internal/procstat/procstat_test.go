package procstat

import (
	"os"
	"strings"
	"testing"
	"time"
)

const line = "42 (a) S 1 (b c) R 7 41 40 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 12345 1000 25 18446744073709551615 1 1"

func TestLineOfAnyProgramIsRead(t *testing.T) {
	t.Parallel()
	got, ok := parse(line)
	want := Stat{
		ID: ID{PID: 42, Start: 12345}, Name: "a) S 1 (b c", State: 'R', Parent: 7, Session: 40,
		User: 100 * time.Millisecond, System: 200 * time.Millisecond,
		WaitedUser: 300 * time.Millisecond, WaitedSystem: 400 * time.Millisecond,
		Resident: 25 * int64(os.Getpagesize()),
	}
	if !ok || got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestOtherTextIsNoLine(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "42", "42 (a", "42 (a) R 7", strings.Replace(line, "42", "x", 1), strings.Replace(line, " 40 ", " x ", 1),
		strings.Replace(line, " 12345 ", " x ", 1), line[:strings.Index(line, " 25 ")],
	} {
		if s, ok := parse(text); ok {
			t.Errorf("%q is read as %+v", text, s)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(line)
	f.Fuzz(func(t *testing.T, text string) {
		if s, ok := parse(text); ok && !strings.Contains(text, "("+s.Name+")") {
			t.Errorf("the name of %q is %q", text, s.Name)
		}
	})
}
