package enter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
)

// Paths of this program and of its Report in a container.
const (
	ProgramPath = "/.container/init"
	reportPath  = "/.container/report"
	// MessagePath is a place for a file of the kubelet's.
	MessagePath = "/.container/message"
)

// Report is the output of Main: Began, or an error, before the command, and Code after it. A
// command begins only after Began is written.
type Report struct {
	Began bool `json:",omitempty"`
	container.Failure
	Code *int `json:",omitempty"`
	// Usage is the command's use; it comes with Code.
	Usage container.Usage `json:",omitzero"`
	// OutputError is that of an Exit, if Main writes the command's output (OrderFiles); it comes with Code.
	OutputError syscall.Errno `json:",omitempty"`
}

// reportWriter writes a report. The caller may be on another host, which sees a line when it is flushed.
type reportWriter struct{ file *os.File }

func openReport() (reportWriter, error) {
	file, err := os.OpenFile(reportPath, os.O_WRONLY|os.O_APPEND|syscall.O_CLOEXEC, 0)
	return reportWriter{file}, err
}

// Encode writes a line.
func (w reportWriter) Encode(r Report) error {
	if err := json.NewEncoder(w.file).Encode(r); err != nil {
		return err
	}
	return w.file.Sync()
}

// ReportPause is the time between two readings of a report, until the command has begun.
const ReportPause = 5 * time.Millisecond

// reportBytes is more than Main writes before the command, or after it.
const reportBytes = 16 << 10

// ReportFile returns the path of the report in a container's directory.
func ReportFile(dir string) string { return filepath.Join(dir, "report") }

// MakeReport makes the file of a report in a directory.
func MakeReport(dir string) (string, error) {
	file := ReportFile(dir)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("make its report: %w", err)
	}
	return file, f.Close()
}

// ReadReport reads both ends of a report. It ignores other lines, because the command may have
// written to the report, too, and at length.
func ReadReport(file string) (r Report) {
	f, err := os.Open(file)
	if err != nil {
		return r
	}
	defer func() { _ = f.Close() }()
	size := int64(0)
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	first := io.NewSectionReader(f, 0, reportBytes)
	last := io.NewSectionReader(f, max(reportBytes, size-reportBytes), reportBytes)
	text, err := io.ReadAll(io.MultiReader(first, strings.NewReader("\n"), last))
	if err != nil {
		return r
	}
	for line := range bytes.Lines(text) {
		_ = json.Unmarshal(line, &r)
	}
	return r
}

// Outcome returns the end of a container, given the exit status of the program that set it up.
// stderr returns that program's output.
func (r Report) Outcome(program string, status syscall.WaitStatus, stderr func() string) (code int, err error) {
	switch {
	case r.Error != "":
		return 0, container.NotBegun(r.Err())
	case r.Began && r.Code != nil:
		return *r.Code, nil
	case status.Signaled():
		return 0, fmt.Errorf("%s was ended by a signal: %v", program, status.Signal()) // its container may still begin
	case r.Began:
		return status.ExitStatus(), nil
	}
	message := initproc.LastMessage(stderr())
	if message == "" {
		message = "exit status " + strconv.Itoa(status.ExitStatus())
	}
	return 0, container.HostErrorf("%s could not set the container up: %s", program, message)
}

// HelperPath returns the path of the program that runs Main; empty means this program.
func HelperPath(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return self, nil
}

// Binds returns the binds that Main needs: the program that runs it, and its report.
func Binds(helper, report string) []container.Bind {
	return []container.Bind{
		{Source: helper, Target: ProgramPath, ReadOnly: true},
		{Source: report, Target: reportPath},
	}
}

// MountOptions formats a bind for Apptainer, Docker and Podman, as a line of comma-separated
// values. readOnly is their word for a read-only bind.
func MountOptions(b container.Bind, readOnly string) []string {
	fields := []string{"type=bind"}
	for _, field := range []string{"source=" + b.Source, "destination=" + b.Target} {
		if strings.ContainsAny(field, ",\"\n\r") {
			field = `"` + strings.ReplaceAll(field, `"`, `""`) + `"`
		}
		fields = append(fields, field)
	}
	if b.ReadOnly {
		fields = append(fields, readOnly)
	}
	return []string{"--mount", strings.Join(fields, ",")}
}
