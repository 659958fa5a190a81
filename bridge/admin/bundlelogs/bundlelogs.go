// Package bundlelogs gathers all that a site has written down about one bundle (cl-bridge logs): the bridge's history
// of it, the lines of the bridge's log that name it, and of each attempt Slurm's output file and the worker's records.
//
// The files are those of spool/ below the shared directory, which every host sees. They stay until keep_after_ack after
// the end of the bundle.
package bundlelogs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Logs has the records about a bundle.
type Logs struct {
	heartbeat.Explanation

	Attempts []Attempt `json:"attempts"`
	// Lines are those of the bridge's log that name the bundle, and Source is their origin. LogTrouble says
	// why there are none; empty if there are.
	Lines      []string `json:"log"`
	Source     string   `json:"log_source,omitempty"`
	LogTrouble string   `json:"log_trouble,omitempty"`
}

// Attempt has the files of one attempt.
type Attempt struct {
	Name string `json:"name"`
	// Dir is the directory of the records, RunDir that of the working directory or its copy; empty if it is gone.
	Dir    string `json:"directory"`
	RunDir string `json:"run_directory,omitempty"`
	Files  []File `json:"files"`
}

// File is one file of an attempt, or the end of it.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"bytes"`
	// Text is the content: at most the last mostText bytes.
	Text string `json:"text"`
	// Trouble is the error of reading it.
	Trouble string `json:"trouble,omitempty"`
}

// mostText bounds what is shown of a file: the output of a job may have any size.
const mostText = 64 << 10

// Collect adds the files of a bundle to its explanation.
func Collect(e heartbeat.Explanation, layout spool.Layout) (Logs, error) {
	l := Logs{Explanation: e, Attempts: []Attempt{}, Lines: []string{}}
	dir := layout.BundleDir(e.Bundle)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l, fmt.Errorf("read the records of %s: %w", e.Bundle, err)
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		name := entry.Name()
		a := Attempt{Name: name, Dir: filepath.Join(dir, name), RunDir: layout.RunDir(e.Bundle, spool.AttemptName(name)), Files: []File{}}
		if _, err := os.Lstat(a.RunDir); errors.Is(err, fs.ErrNotExist) {
			a.RunDir = "" // of a run that was resumed, and later attempts have copies
		}
		for _, file := range spool.AttemptFiles() {
			if f, ok := readEnd(a.Dir, file); ok {
				a.Files = append(a.Files, f)
			}
		}
		l.Attempts = append(l.Attempts, a)
	}
	slices.SortStableFunc(l.Attempts, func(a, b Attempt) int { return compareNumbers(a.Name, b.Name) })
	return l, nil
}

// compareNumbers compares the numbers before the first "-": attempt 10 comes after attempt 9.
func compareNumbers(a, b string) int {
	number, _, _ := strings.Cut(a, "-")
	other, _, _ := strings.Cut(b, "-")
	if len(number) != len(other) {
		return len(number) - len(other)
	}
	return strings.Compare(a, b)
}

// readEnd reads the end of a file; false if there is none.
func readEnd(dir, name string) (File, bool) {
	file := File{Name: name}
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return file, false
	}
	if err == nil {
		file.Size, file.Text, err = readTail(f)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		file.Trouble = err.Error()
	}
	return file, true
}

func readTail(f *os.File) (size int64, text string, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, "", err
	}
	if !info.Mode().IsRegular() {
		return 0, "", errors.New("it is no regular file")
	}
	from := max(info.Size()-mostText, 0)
	data, err := io.ReadAll(io.NewSectionReader(f, from, mostText))
	if from > 0 {
		if _, rest, cut := strings.Cut(string(data), "\n"); cut { // it begins within a line
			return info.Size(), rest, err
		}
	}
	return info.Size(), string(data), err
}

// mostLines bounds the lines of the bridge's log: the newest are kept.
const mostLines = 1000

// AddFile adds the lines of a log file that name the bundle.
func (l *Logs) AddFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("search log: %w", err)
	}
	l.Source = path
	return errors.Join(l.addLines(f), f.Close())
}

func (l *Logs) addLines(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, l.Bundle) {
			if l.Lines = append(l.Lines, strings.TrimRight(line, "\n")); len(l.Lines) > 2*mostLines {
				l.Lines = slices.Clone(l.Lines[len(l.Lines)-mostLines:])
			}
		}
		if errors.Is(err, io.EOF) {
			l.Lines = l.Lines[max(len(l.Lines)-mostLines, 0):]
			if len(l.Lines) == 0 {
				l.LogTrouble = "no line names the bundle"
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
	}
}

// Unit is the bridge's unit of the user's service manager.
const Unit = "cl-bridge.service"

// journalWithin bounds a search of the journal.
const journalWithin = 30 * time.Second

// AddJournal adds the lines of the journal of the user's service manager that name the bundle. env is the environment of
// journalctl.
func (l *Logs) AddJournal(ctx context.Context, env []string) { l.addJournalOf(ctx, "journalctl", env) }

// addJournalOf is AddJournal with the path of journalctl.
func (l *Logs) addJournalOf(ctx context.Context, program string, env []string) {
	ctx, stop := context.WithTimeout(ctx, journalWithin)
	defer stop()
	l.Source = "journalctl --user --unit " + Unit
	args := []string{program, "--user", "--unit", Unit, "--output", "short-iso", "--no-pager", "--quiet", "--grep", l.Bundle}
	out, err := command.Command{Args: args, Env: env}.Output(ctx)
	// journalctl ends with 1, and without words, if no line matches.
	if failed, ok := errors.AsType[*command.Error](err); ok && (failed.ExitCode != 1 || failed.Stderr != "") {
		l.LogTrouble = err.Error()
		return
	}
	if err := l.addLines(strings.NewReader(string(out))); err != nil {
		l.LogTrouble = err.Error()
	}
}
