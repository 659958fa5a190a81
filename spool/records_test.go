package spool

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

func at(second int) time.Time { return time.Date(2026, 11, 20, 10, 0, second, 123456789, time.UTC) }

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	layout := mounted(t, t.TempDir()).Layout
	a := layout.Attempt("0x1", "2-b1")
	spec := Spec{
		Format: Format, Bundle: "0x1", Attempt: 2, SubmissionName: "cl-ann-0x1.2-6f2c1d", Command: "echo 'a\nb' \"$x\" \x01é",
		Inputs: Inputs{SIF: "/shared/cache/i.sif", PinnedReference: "a/b@sha256:1", Dependencies: []Dependency{{ChildPath: "a b", Source: "/c"}}},
		RunDir: layout.RunDir("0x1", "2-b1"), GPUs: 2, MemoryBytes: 1 << 40, DiskBytes: 1, Seconds: 0.5, Network: true, Scratch: "/tmp",
	}
	usage := Usage{UserSeconds: 1.25, SystemSeconds: 2, MemoryBytes: 3, MemoryPeak: 1 << 50, DiskBytes: 5}
	status := Status{Format: Format, Token: "t", Stage: StageRunning, At: at(1), CommandStarted: at(2), Usage: usage}
	code := 137
	exit := Exit{
		Format: Format, Token: "t", Cause: CauseLimit, ExitCode: &code, Failure: "too long", Terminated: true,
		CommandStarted: at(3), CommandEnded: at(4), Usage: usage,
	}
	for range 2 { // a repetition is harmless
		must(t, errors.Join(a.WriteSpec(spec), a.WriteStatus(status), a.WriteExit(exit)))
	}
	gotSpec, specErr := AttemptOf(a.SpecPath()).ReadSpec()
	gotStatus, statusErr := a.ReadStatus()
	gotExit, exitErr := a.ReadExit()
	must(t, errors.Join(specErr, statusErr, exitErr))
	if d := cmp.Diff(spec, gotSpec) + cmp.Diff(status, gotStatus) + cmp.Diff(exit, gotExit); d != "" {
		t.Error(d)
	}
	if info, err := os.Stat(spec.RunDir); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		t.Errorf("run directory: %v, %v", info, err)
	}
	if left := temporaries(t, a); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Jobs that an earlier version of the bridge has submitted read its records.
func TestImageOfAnOlderSpecIsRead(t *testing.T) {
	t.Parallel()
	a := attempt(t)
	write(t, a.SpecPath(), `{"format":1,"bundle":"0x1","attempt":1,"image":"/images/x.sif","image_digest":"/images/x.sif@sha256:1",`+
		`"image_file":{"size":3,"modified":4},"run_dir":"/runs/0x1","command":"true"}`)
	spec, err := a.ReadSpec()
	want := Inputs{SIF: "/images/x.sif", PinnedReference: "/images/x.sif@sha256:1", SIFFile: &SIFFile{Size: 3, Modified: 4}}
	if d := cmp.Diff(want, spec.Inputs); err != nil || d != "" {
		t.Errorf("%v, %s", err, d)
	}
}

func TestEndWithoutACommandHasNoExitCode(t *testing.T) {
	t.Parallel()
	a := attempt(t)
	must(t, a.WriteExit(Exit{Token: "t", Cause: CausePlatform}))
	e, err := a.ReadExit()
	if err != nil || e.ExitCode != nil || !e.CommandStarted.IsZero() {
		t.Errorf("%+v, %v", e, err)
	}
}

// readers read each kind of record.
func readers(a Attempt) map[string]func() error {
	return map[string]func() error{
		"spec.json":   func() error { _, err := a.ReadSpec(); return err },
		"started":     func() error { _, err := a.ReadStarted(); return err },
		"status.json": func() error { _, err := a.ReadStatus(); return err },
		"exit.json":   func() error { _, err := a.ReadExit(); return err },
	}
}

func TestWhatIsNoWholeRecordIsRefused(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"of another version": `{"format":2,"token":"t","cause":"user"}`,
		"of no version":      `{"token":"t","cause":"user"}`,
		"empty":              ``,
		"half":               `{"format":1,"token":"t","cau`,
		"doubled":            `{"format":1,"token":"t","cause":"user"}{"format":1}`,
		"nothing":            `null`,
		"a list":             `[]`,
	} {
		a := attempt(t)
		for file, read := range readers(a) {
			write(t, filepath.Join(a.Dir, file), content)
			if err := read(); err == nil || errors.Is(err, ErrNone) {
				t.Errorf("%s, %s: %v", file, name, err)
			}
		}
	}
}

func TestRecordOfNobodyIsRefused(t *testing.T) {
	t.Parallel()
	a := attempt(t)
	for file, content := range map[string]string{
		"started":     `{"format":1,"token":""}`,
		"status.json": `{"format":1,"stage":"running"}`,
		"exit.json":   `{"format":1,"cause":"succeeded"}`,
	} {
		write(t, filepath.Join(a.Dir, file), content)
		if err := readers(a)[file](); err == nil {
			t.Errorf("%s without a token was read", file)
		}
	}
	write(t, filepath.Join(a.Dir, "exit.json"), `{"format":1,"token":"t","cause":"weather"}`)
	if _, err := a.ReadExit(); err == nil {
		t.Error("an end of unknown cause was read")
	}
}

func TestHalfWrittenTemporariesAreNoRecords(t *testing.T) {
	t.Parallel()
	a := attempt(t)
	for file, read := range readers(a) {
		write(t, filepath.Join(a.Dir, "."+file+".tmp-1"), `{"format":1,"tok`)
		if err := read(); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v, want ErrNone", file, err)
		}
	}
	if _, own, err := a.Begin(t.Context(), Started{Token: NewToken()}); !own || err != nil {
		t.Errorf("begin: %v, %v", own, err)
	}
}

func TestReaderSeesAWholeRecordOrNone(t *testing.T) {
	t.Parallel()
	a := attempt(t)
	written := make(chan error, 1)
	go func() {
		defer close(written)
		for i := range 300 {
			if err := a.WriteStatus(Status{Token: "t", Stage: StageRunning, Usage: Usage{DiskBytes: int64(i)}}); err != nil {
				written <- err
				return
			}
		}
	}()
	last := int64(-1)
	for over := false; !over; {
		select {
		case err := <-written:
			must(t, err)
			over = true
		default:
		}
		s, err := a.ReadStatus()
		if errors.Is(err, ErrNone) && last < 0 {
			continue
		}
		if err != nil || s.Usage.DiskBytes < last {
			t.Fatalf("after %d: %+v, %v", last, s, err)
		}
		last = s.Usage.DiskBytes
	}
	if last != 299 {
		t.Errorf("last seen %d", last)
	}
}

func TestRecordIsWrittenThroughNoLink(t *testing.T) {
	t.Parallel()
	a := attempt(t)
	elsewhere := filepath.Join(t.TempDir(), "precious")
	write(t, elsewhere, "precious")
	must(t, os.Symlink(elsewhere, filepath.Join(a.Dir, "status.json")))
	must(t, a.WriteStatus(Status{Token: "t"}))
	if data, err := os.ReadFile(elsewhere); err != nil || string(data) != "precious" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestPlacesOfTheLayout(t *testing.T) {
	t.Parallel()
	layout := Layout("/shared")
	a := layout.Attempt("0x1", "2-b1")
	for got, want := range map[string]string{
		a.SpecPath():                        "/shared/spool/0x1/2-b1/spec.json",
		a.OutputPath():                      "/shared/spool/0x1/2-b1/slurm.out",
		layout.BundleDir("0x1"):             "/shared/spool/0x1",
		layout.RunDir("0x1", "2-b1"):        "/shared/runs/0x1/2-b1",
		layout.RunsDir("0x1"):               "/shared/runs/0x1",
		layout.Cache():                      "/shared/cache",
		layout.Bin("0123456789abcdef01234"): "/shared/bin/0123456789ab",
		layout.Bin("01"):                    "/shared/bin/01",
		DependenciesDir("0x1"):              "/0x1_dependencies",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// For any content in a record's place, a reader returns a record that was written whole, or an error.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"format":1,"token":"t","cause":"user","exit_code":1}`))
	f.Add([]byte(`{"format":1,"token":"t","closed":true,"at":"2026-11-20T10:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a := Attempt{Dir: t.TempDir()}
		for file := range readers(a) {
			write(t, filepath.Join(a.Dir, file), string(data))
		}
		if s, err := a.ReadStarted(); err == nil && (s.Format != Format || s.Token == "") {
			t.Errorf("%q was read as %+v", data, s)
		}
		e, err := a.ReadExit()
		if err == nil && (e.Format != Format || e.Token == "" || e.Cause == "") {
			t.Errorf("%q was read as %+v", data, e)
		}
		if err == nil {
			err := a.WriteExit(e)
			again, readErr := a.ReadExit()
			if d := cmp.Diff(e, again); err != nil || readErr != nil || d != "" {
				t.Errorf("written again: %v, %v, %s", err, readErr, d)
			}
		}
	})
}

var must = testenv.Must
