package pages

import (
	"context"
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
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const (
	// outputLines is the number of lines of the end of stdout and stderr that a bundle's page shows.
	outputLines = 100
	// mostOutput bounds their bytes.
	mostOutput = 64 << 10
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
	// Access is a sentence about the permissions on the bundle.
	Access string
	// Outputs are the ends of stdout and stderr, as far as there are any.
	Outputs []output
	Files   *directory
	// Unread is a sentence about files that cannot be read now.
	Unread string
	// File is the file that is shown in place of all else; nil for none.
	File *file
	// Log has the curves of a file of the run; nil for none.
	Log *logView
	// Usage is the use of a run over time; nil for none.
	Usage *usageView
	// Lineage has the bundle's ancestors and descendants.
	Lineage lineageView
	// Done is a sentence about the last action.
	Done string
}

// Mine reports whether the visitor may change the bundle.
func (b bundlePage) Mine() bool { return b.Permission >= codalab.PermissionAll }

// Removable reports whether the visitor may remove the bundle now.
func (b bundlePage) Removable() bool { return b.Mine() && b.Frozen == nil && !b.State.Busy() }

// Killable reports whether the visitor may kill the bundle now.
func (b bundlePage) Killable() bool { return b.Mine() && b.Frozen == nil && !b.State.Final() }

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

// CL is the command that shows the same file or directory; empty for a name that no shell can be told.
func (b bundlePage) CL() string {
	subpath := ""
	switch {
	case b.File != nil:
		subpath = b.File.Path
	case b.Files != nil:
		subpath = b.Files.Path
	}
	if !utf8.ValidString(subpath) {
		return ""
	}
	return codalab.JoinWords([]string{"cl", "cat", strings.TrimSuffix(b.UUID+"/"+subpath, "/")})
}

// Description is the owner's text about the bundle.
func (b bundlePage) Description() string { return b.Metadata.String("description") }

// Tags are the bundle's tags without those of its sweep.
func (b bundlePage) Tags() string { return strings.Join(b.Metadata.TagsOutsideSweep(), " ") }

type fact struct{ Key, Value string }

type output struct {
	Name, Text string
	// Unread is a sentence about an output that cannot be read now.
	Unread string
	// Size is that of the whole file; -1 if it is not known.
	Size int64
	// Address is that of the page of the whole file; empty while there is none.
	Address string
}

// directory is a list of files.
type directory struct {
	// Path is the directory's path in its bundle, and Shown that without characters that steer the text around it.
	Path, Shown string
	Entries     []entry
	// All is the number of all entries, of which Entries are some that come after a name; 0 if these are all.
	All int
	// Next is the address of the entries that follow; empty for none.
	Next string
}

type entry struct {
	codalab.TargetInfo
	// Shown is the name without characters that steer the text around it.
	Shown string
	// Path is the entry's path in the bundle, as part of an address.
	Path string
}

// IsDirectory reports whether an entry is a directory.
func (e entry) IsDirectory() bool { return e.Type == codalab.TargetDirectory }

// bundle shows a bundle.
func (p *Pages) bundle(v *visit) error {
	b, err := p.openBundle(v)
	if err != nil {
		return err
	}
	b.Done = done(v.URL.Query())
	b.Facts = facts(b.Bundle)
	b.Access = codalab.Sentence(codalab.Audience{Me: v.user, Owner: b.Owner, Granted: b.GroupPermissions}.String())
	// A worker that does not answer holds nobody up.
	ctx, cancel := context.WithTimeout(v.Context(), filesWithin)
	defer cancel()
	whole := v.Request
	v.Request = whole.WithContext(ctx)
	if err = p.open(v, &b, ""); isMissing(err) { // there is nothing
		err = nil
	}
	if err == nil && b.Files != nil {
		b.Log = p.log(v, b.Files)
	}
	if err != nil { // the rest of the page is there nevertheless
		b.Unread = unread(err)
	}
	if b.Run() {
		b.Outputs = p.outputs(v, b)
	}
	v.Request = whole
	b.Usage = p.usage(v, b)
	b.Lineage = p.lineage(v.Context(), v, b)
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
		o := output{Name: name, Size: -1, Unread: b.Unread}
		if there {
			o = p.end(v, name)
		}
		list = append(list, o)
	}
	return list
}

// unread is the sentence about what cannot be read.
func unread(err error) string {
	no, ok := errors.AsType[*codalab.Error](err)
	switch {
	case ok && no.Status == 0: // the message has an address that is of no use
		return "It cannot be read now: there was no answer in time."
	case ok && no.Message != "":
		return "It cannot be read now: " + no.Message
	}
	return "It cannot be read now."
}

func (p *Pages) openBundle(v *visit) (bundlePage, error) {
	found, err := v.api.Bundle(v.Context(), v.PathValue("uuid"), client.IncludeOwner, client.IncludePermissions, client.IncludeWorksheets)
	if err != nil {
		return bundlePage{}, fmt.Errorf("show bundle: %w", err)
	}
	return bundlePage{row: row{found, why(found.Bundle)}}, nil
}

// facts are the metadata as texts, in the order and in the words of cl info, without those that stand at the page's head.
func facts(b codalab.Bundle) []fact {
	known := map[string]bool{"name": true, "description": true, "store": true, "error_traceback": true} // stores and tracebacks are for administrators
	var keys []string
	for _, k := range codalab.MetadataKeys(b.Type) {
		if !known[k.Key] {
			keys = append(keys, k.Key)
		}
		known[k.Key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(b.Metadata)) {
		if !known[key] {
			keys = append(keys, key)
		}
	}
	var list []fact
	for _, key := range keys {
		if value := factText(b.Metadata, key); value != "" && !b.IsStale(key) {
			list = append(list, fact{key, value})
		}
	}
	return list
}

// factText is a value of metadata for people; empty for none.
func factText(m codalab.Metadata, key string) string {
	if m[key] == nil {
		return ""
	}
	return codalab.FormatMetadata(key, m[key], time.UTC)
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

// open reads what is at a path: a directory's entries after a name, or the beginning of a file.
func (p *Pages) open(v *visit, b *bundlePage, subpath string) error {
	info, err := v.api.ContentsPage(v.Context(), p.target(v, subpath), mostEntries, v.URL.Query().Get("after"))
	if err != nil {
		return fmt.Errorf("show files: %w", err)
	}
	if info.Type == codalab.TargetDirectory {
		b.Files = newDirectory(v.PathValue("uuid"), subpath, info)
		return nil
	}
	name := subpath
	if name == "" { // the bundle is a single file, whose name it has
		name = b.Name()
	}
	b.File, err = p.file(v, subpath, name, info.Size)
	return err
}

func newDirectory(uuid, subpath string, info codalab.TargetInfo) *directory {
	d := &directory{Path: subpath, Shown: termtext.OneLine(subpath)}
	for _, e := range info.Contents {
		d.Entries = append(d.Entries, entry{e, termtext.OneLine(e.Name), filesAddress(uuid, path.Join(subpath, e.Name))})
	}
	if n := len(info.Contents); info.Entries > n {
		if d.All = info.Entries; n == mostEntries {
			d.Next = filesAddress(uuid, subpath) + "?" + url.Values{"after": {info.Contents[n-1].Name}}.Encode()
		}
	}
	return d
}

// end is the end of a file of a run, or the reason for which it cannot be read now.
func (p *Pages) end(v *visit, name string) output {
	o := output{Name: name, Size: -1}
	text, err := p.lastLines(v, &o)
	if err == nil && len(text) == 0 && o.Size > 0 { // one long line, as of a progress bar
		text, err = p.section(v, name, max(0, o.Size-mostOutput), mostOutput)
	}
	if err != nil && !isMissing(err) {
		o.Unread = unread(err)
	}
	o.Text = termtext.Screen(strings.ToValidUTF8(string(text), "\ufffd"))
	return o
}

// lastLines reads the last lines of an output, and sets its size and its address.
func (p *Pages) lastLines(v *visit, o *output) ([]byte, error) {
	contents, err := v.api.OpenLines(v.Context(), p.target(v, o.Name), 0, outputLines)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.Name, err)
	}
	defer contents.Close()
	o.Size, o.Address = contents.Size, filesAddress(v.PathValue("uuid"), o.Name)
	text, err := io.ReadAll(io.LimitReader(contents, mostOutput))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.Name, err)
	}
	return text, nil
}

// files shows a file or a directory of a bundle.
func (p *Pages) files(v *visit) error {
	subpath := strings.Trim(v.PathValue("path"), "/")
	b, err := p.openBundle(v)
	if err != nil {
		return err
	}
	if err = p.open(v, &b, subpath); err != nil {
		return err
	}
	return p.show(v, http.StatusOK, "files", path.Base("/"+termtext.OneLine(subpath)), b)
}
