package pages

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/logcurves"
	"github.com/cl-slurm/cl-slurm/server/preview"
)

// file is a file that is shown.
type file struct {
	preview.File
	// Path is the file's path in its bundle, and Shown that without characters that steer the text around it.
	Path, Shown string
	// Blob is the address of the file itself.
	Blob string
	Size int64
	// PDF is the address at which the browser's own viewer shows a PDF.
	PDF string
	// Log has the file's curves; nil for none.
	Log *logView
}

// logView has the curves of a log.
type logView struct {
	logcurves.Curves
	// Path is the log's path in its bundle, Address that of its page, and Query has it for a stream.
	Path, Address, Query string
	// Cut is set if the log goes on.
	Cut bool
}

// mostLog is the number of bytes of a log that are read for its curves. The first logPart of them tell whether it has any.
const (
	mostLog = 4 << 20
	logPart = 256 << 10
)

// file reads the beginning of a file of a size. name tells its kind.
func (p *Pages) file(v *visit, subpath, name string, size int64) (*file, error) {
	uuid := v.PathValue("uuid")
	f := &file{Path: subpath, Shown: termtext.OneLine(subpath), Blob: blob(uuid, subpath), PDF: pdfAddress(uuid, subpath), Size: size}
	var begin []byte
	if most := preview.Most(name); most > 0 {
		var err error
		if begin, err = p.section(v, subpath, 0, most); err != nil {
			return nil, err
		}
	}
	f.File = preview.Of(v.Context(), name, max(size, int64(len(begin))), begin, p.markup.Page().HTML)
	if !logcurves.IsLog(name) || f.Kind == preview.Other {
		return f, nil
	}
	l := &follower{log: logcurves.New(name), bundle: uuid, path: subpath}
	if err := l.log.Read(bytes.NewReader(begin), size <= int64(len(begin))); err != nil {
		return nil, fmt.Errorf("show file: %w", err)
	}
	if l.log.HasCurves() && size > l.log.Offset() {
		if err := p.readLog(v, l, size, true); err != nil {
			return nil, err
		}
	}
	f.Log = l.view()
	return f, nil
}

// section reads a section of a file.
func (p *Pages) section(v *visit, subpath string, from, most int64) ([]byte, error) {
	contents, err := v.api.OpenContents(v.Context(), p.target(v, subpath), &client.Range{Offset: from, Length: most})
	if err != nil {
		return nil, fmt.Errorf("show file: %w", err)
	}
	defer contents.Close()
	text, err := io.ReadAll(io.LimitReader(contents, most))
	if err != nil {
		return nil, fmt.Errorf("show file: %w", err)
	}
	return text, nil
}

// follower reads a log as it grows.
type follower struct {
	log *logcurves.Log
	// bundle is the uuid of the bundle in which the log has this path.
	bundle, path string
	cut          bool
}

// view returns the curves; nil if there are none.
func (l *follower) view() *logView {
	view := &logView{Curves: l.log.Curves(), Path: l.path, Address: filesAddress(l.bundle, l.path), Query: url.Values{"log": {l.path}}.Encode(), Cut: l.cut}
	if len(view.Curves.Curves) == 0 {
		return nil
	}
	return view
}

// readLog reads on in a log of a size, up to mostLog. A line without an end is read if the log is whole.
func (p *Pages) readLog(v *visit, l *follower, size int64, whole bool) error {
	from := l.log.Offset()
	l.cut = size > mostLog
	if from >= min(size, mostLog) {
		return nil
	}
	contents, err := v.api.OpenContents(v.Context(), p.target(v, l.path), &client.Range{Offset: from, Length: min(size, mostLog) - from})
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if err = errors.Join(l.log.Read(contents, whole && !l.cut), contents.Close()); err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	return nil
}

// more reads what is new in a log, and all of it anew if it has become shorter.
func (p *Pages) more(v *visit, l *follower) error {
	info, err := v.api.ContentsInfo(v.Context(), p.target(v, l.path), 0)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if info.Type != codalab.TargetFile {
		return fmt.Errorf("read log: %s is no file", l.path)
	}
	if info.Size < l.log.Offset() {
		l.log = logcurves.New(l.path)
	}
	return p.readLog(v, l, info.Size, false)
}

// log returns the curves of a file in a run's directory: of one with a known name, such as metrics, or else of the first one
// that can have some. A log that cannot be read now has none.
func (p *Pages) log(v *visit, d *directory) *logView {
	var logs []codalab.TargetInfo
	for _, e := range d.Entries {
		if e.Type == codalab.TargetFile && logcurves.IsLog(e.Name) {
			logs = append(logs, e.TargetInfo)
		}
	}
	if len(logs) == 0 {
		return nil
	}
	slices.SortStableFunc(logs, func(a, b codalab.TargetInfo) int { return logRank(a.Name) - logRank(b.Name) })
	l := &follower{log: logcurves.New(logs[0].Name), bundle: v.PathValue("uuid"), path: logs[0].Name}
	if err := p.readLog(v, l, min(logs[0].Size, logPart), false); err != nil || !l.log.HasCurves() {
		return nil
	}
	if err := p.readLog(v, l, logs[0].Size, true); err != nil {
		return nil
	}
	return l.view()
}

// logRank orders logs: the least comes first.
func logRank(name string) int {
	known := []string{"metrics", "log", "history", "train", "progress"}
	ext := strings.ToLower(path.Ext(name))
	rank := slices.Index(known, strings.ToLower(strings.TrimSuffix(name, path.Ext(name))))
	if rank < 0 {
		rank = len(known)
	}
	if ext == ".csv" { // which may be any table
		rank += len(known)
	}
	return rank
}
