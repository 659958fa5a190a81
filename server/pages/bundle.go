package pages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const (
	// outputLines is the number of lines of the end of stdout and stderr that a bundle's page shows.
	outputLines = 100
	// mostOutput bounds their bytes, and mostPreview those of a file that is shown.
	mostOutput  = 64 << 10
	mostPreview = 256 << 10
	// filesWithin is the time that a bundle's page waits for its files.
	filesWithin = 3 * time.Second
	// mostEntries is the number of entries of a directory that are shown.
	mostEntries = 1000
)

// bundlePage has the contents of bundle.html.
type bundlePage struct {
	row
	// Facts are the metadata, by key.
	Facts []fact
	// Outputs are the ends of stdout and stderr, as far as there are any.
	Outputs []output
	Files   *directory
	// Unread is a sentence about files that cannot be read now.
	Unread string
	// File is the file that is shown in place of all else; nil for none.
	File *file
	// Done is a sentence about the last action.
	Done string
}

// Mine reports whether the visitor may change the bundle.
func (b bundlePage) Mine() bool { return b.Permission >= codalab.PermissionAll }

// Run reports whether the bundle is a run.
func (b bundlePage) Run() bool { return b.Type == codalab.TypeRun }

// Sentence names the bundle's type, owner and size.
func (b bundlePage) Sentence() string {
	text := "A " + b.Type
	if owner := b.OwnerName(); owner != "" {
		text += " of " + owner
	}
	if size := b.Metadata.Int("data_size"); size > 0 {
		text += ", " + codalab.FormatSize(size)
	}
	if ran := b.Ran(); ran != "" {
		text += ", ran " + ran
	}
	return text + "."
}

type fact struct{ Key, Value string }

type output struct {
	Name, Text string
	// Size is that of the whole file; -1 if it is not known.
	Size int64
}

// directory is a list of files.
type directory struct {
	Path    string
	Entries []entry
	// Left is the number of those that are not shown.
	Left int
}

type entry struct {
	codalab.TargetInfo
	// Path is the entry's path in the bundle, as part of an address.
	Path string
}

// IsDirectory reports whether an entry is a directory.
func (e entry) IsDirectory() bool { return e.Type == codalab.TargetDirectory }

// file is a file that is shown.
type file struct {
	Path string
	// Blob is the address of the file itself.
	Blob string
	Size int64
	// Kind is text, table, image or other.
	Kind string
	Text string
	// Header and Rows are those of a table.
	Header []string
	Rows   [][]string
	// Cut is set if the file goes on.
	Cut bool
}

// bundle shows a bundle.
func (p *Pages) bundle(v *visit) error {
	b, err := p.openBundle(v)
	if err != nil {
		return err
	}
	b.Done = done(v.URL.Query())
	b.Facts = facts(b.Metadata)
	// A worker that does not answer holds nobody up.
	ctx, cancel := context.WithTimeout(v.Context(), filesWithin)
	defer cancel()
	whole := v.Request
	v.Request = whole.WithContext(ctx)
	if b.Files, err = p.directory(v, ""); err == nil && b.Files == nil { // a file, or nothing
		if b.File, err = p.file(v, ""); isStatus(err, http.StatusNotFound) {
			err = nil
		}
	}
	if err != nil { // the rest of the page is there nevertheless
		b.Unread = unread(err)
	}
	if b.Run() {
		b.Outputs = p.outputs(v, b)
	}
	v.Request = whole
	return p.show(v, http.StatusOK, "bundle", b.Name(), b)
}

// outputNames are the files that a run's page shows.
func outputNames() []string { return []string{"stdout", "stderr"} }

// outputs are the ends of a run's output. A run that goes on has a place for each, which a stream fills.
func (p *Pages) outputs(v *visit, b bundlePage) []output {
	var list []output
	for _, name := range outputNames() {
		there := b.Files != nil && slices.ContainsFunc(b.Files.Entries, func(e entry) bool { return e.Name == name })
		if !there && b.State.Final() {
			continue
		}
		o := output{Name: name, Size: -1}
		if there {
			var err error
			if o, err = p.end(v, name); err != nil {
				o.Text = unread(err)
			}
		}
		list = append(list, o)
	}
	return list
}

// unread is the sentence about what cannot be read.
func unread(err error) string {
	if no, ok := errors.AsType[*codalab.Error](err); ok && no.Message != "" {
		return "It cannot be read now: " + no.Message
	}
	return "It cannot be read now."
}

func (p *Pages) openBundle(v *visit) (bundlePage, error) {
	found, err := v.api.Bundle(v.Context(), v.PathValue("uuid"), client.IncludeOwner, client.IncludeChildren, client.IncludePermissions, client.IncludeWorksheets)
	if err != nil {
		return bundlePage{}, fmt.Errorf("show bundle: %w", err)
	}
	return bundlePage{row: row{found, why(found.Bundle)}}, nil
}

// facts are the metadata as texts, in the order of their keys.
func facts(m codalab.Metadata) []fact {
	var list []fact
	for _, key := range slices.Sorted(maps.Keys(m)) {
		text, err := json.Marshal(m[key])
		value := string(text)
		if s, ok := m[key].(string); ok || err != nil {
			value = s
		}
		if value != "" && value != "[]" && value != "null" {
			list = append(list, fact{key, value})
		}
	}
	return list
}

func (p *Pages) target(v *visit, subpath string) codalab.Target {
	return codalab.Target{BundleUUID: v.PathValue("uuid"), Subpath: subpath}
}

// filesAddress is the address of the page of a file.
func filesAddress(uuid, subpath string) string {
	return (&url.URL{Path: "/bundles/" + uuid + "/files/" + subpath}).EscapedPath()
}

// blob is the address of a file itself.
func blob(uuid, subpath string) string {
	return (&url.URL{Path: "/rest/bundles/" + uuid + "/contents/blob/" + subpath}).EscapedPath()
}

// directory lists a directory; nil if the path is none.
func (p *Pages) directory(v *visit, subpath string) (*directory, error) {
	info, err := v.api.ContentsInfo(v.Context(), p.target(v, subpath), 1)
	if isStatus(err, http.StatusNotFound) || err == nil && info.Type != codalab.TargetDirectory {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	d := &directory{Path: subpath, Left: max(0, len(info.Contents)-mostEntries)}
	for _, e := range info.Contents[:len(info.Contents)-d.Left] {
		d.Entries = append(d.Entries, entry{e, filesAddress(v.PathValue("uuid"), path.Join(subpath, e.Name))})
	}
	return d, nil
}

// end returns the last lines of a file of a run.
func (p *Pages) end(v *visit, name string) (output, error) {
	o := output{Name: name, Size: -1}
	contents, err := v.api.OpenLines(v.Context(), p.target(v, name), 0, outputLines)
	if err != nil {
		return o, fmt.Errorf("read %s: %w", name, err)
	}
	defer contents.Close()
	o.Size = contents.Size
	text, err := io.ReadAll(io.LimitReader(contents, mostOutput))
	if err != nil {
		return o, fmt.Errorf("read %s: %w", name, err)
	}
	o.Text = strings.ToValidUTF8(string(text), "\ufffd")
	return o, nil
}

// files shows a file or a directory of a bundle.
func (p *Pages) files(v *visit) error {
	subpath := strings.Trim(v.PathValue("path"), "/")
	b, err := p.openBundle(v)
	if err != nil {
		return err
	}
	if b.Files, err = p.directory(v, subpath); err != nil {
		return err
	}
	if b.Files == nil {
		if b.File, err = p.file(v, subpath); err != nil {
			return err
		}
	}
	return p.show(v, http.StatusOK, "files", path.Base("/"+subpath), b)
}

// file reads the beginning of a file, in the form that its name tells.
func (p *Pages) file(v *visit, subpath string) (*file, error) {
	contents, err := v.api.OpenContents(v.Context(), p.target(v, subpath), &client.Range{Length: mostPreview})
	if err != nil {
		return nil, fmt.Errorf("show file: %w", err)
	}
	defer contents.Close()
	text, err := io.ReadAll(io.LimitReader(contents, mostPreview))
	if err != nil {
		return nil, fmt.Errorf("show file: %w", err)
	}
	info, err := v.api.ContentsInfo(v.Context(), p.target(v, subpath), 0)
	if err != nil {
		return nil, fmt.Errorf("show file: %w", err)
	}
	return preview(subpath, blob(v.PathValue("uuid"), subpath), info.Size, text), nil
}
