package export

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// The names of entries.
const (
	descriptionName = "worksheet.json"
	linesName       = "worksheet.md"
	pageName        = "index.html"
	manifestName    = "manifest-sha256.txt"
	contentsName    = "contents/"
)

// The format of the description.
const (
	format  = "codalab-worksheet"
	version = 1
)

// Description is the file worksheet.json.
type Description struct {
	// Format and Version tell programs how to read it.
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Server is the address of the server that had the worksheet.
	Server    string    `json:"server"`
	Worksheet Worksheet `json:"worksheet"`
	// Items are those of the worksheet, in their order.
	Items []Item `json:"items"`
	// Bundles are those of the items, each once, in the order of the items.
	Bundles []Bundle `json:"bundles"`
}

// Worksheet is the worksheet without its items. Who may read it is not told.
type Worksheet struct {
	codalab.WorksheetName
	Title string   `json:"title,omitempty"`
	Tags  []string `json:"tags"`
	Owner string   `json:"owner,omitempty"`
}

// Item is an item of a worksheet. One that shows a bundle or another worksheet has its uuid.
type Item struct {
	Type      string                 `json:"type"`
	Value     string                 `json:"value,omitempty"`
	Bundle    string                 `json:"bundle,omitempty"`
	Worksheet *codalab.WorksheetName `json:"worksheet,omitempty"`
}

// Bundle is a bundle of the worksheet. Of one that the user may not read, only UUID and LeftOut are set.
type Bundle struct {
	UUID         string               `json:"uuid"`
	Type         string               `json:"bundle_type,omitempty"`
	State        codalab.State        `json:"state,omitempty"`
	Owner        string               `json:"owner,omitempty"`
	Command      *string              `json:"command,omitempty"`
	Dependencies []codalab.Dependency `json:"dependencies,omitempty"`
	// Metadata does not have the names of secrets.
	Metadata codalab.Metadata `json:"metadata,omitempty"`
	// Platform is that of a run, without the digests of its inputs; nil if the server did not know it.
	Platform *codalab.Platform `json:"platform,omitempty"`
	// Contents are in the archive; nil for none.
	Contents *Contents `json:"contents,omitempty"`
	// LeftOut is the reason for which the archive does not have the bundle's contents; empty if it has, or if there are none.
	LeftOut string `json:"left_out,omitempty"`
	// Note tells which pipes and devices of the contents are not in the archive.
	Note string `json:"note,omitempty"`
}

// Contents are the type and the place in the archive of a bundle's contents.
type Contents struct {
	// Type is that of the contents: a file or a directory.
	Type codalab.TargetType `json:"type"`
	// Path is the name of the file, or that of the directory, which ends with a slash.
	Path string `json:"path"`
}

// Bare reports whether the archive lacks the bundle's contents because nobody wanted them.
func (b Bundle) Bare() bool { return b.LeftOut == notWanted }

// Name returns the bundle's name, or else its uuid.
func (b Bundle) Name() string {
	if name := b.Metadata.String("name"); name != "" {
		return name
	}
	return b.UUID
}

// describe returns the description of a worksheet, whose bundles have no contents yet.
func describe(w client.Worksheet, server string) Description {
	d := Description{
		Format: format, Version: version, Server: server,
		Worksheet: Worksheet{WorksheetName: w.WorksheetName, Tags: append([]string{}, w.Tags...)},
		Items:     []Item{}, Bundles: []Bundle{},
	}
	if w.Title != nil {
		d.Worksheet.Title = *w.Title
	}
	if w.Owner != nil {
		d.Worksheet.Owner = w.Owner.UserName
	}
	known := map[string]bool{}
	for _, item := range w.Items {
		one := Item{Type: item.Type, Value: item.Value}
		if item.Bundle != nil {
			one.Bundle = item.Bundle.UUID
			if !known[one.Bundle] {
				known[one.Bundle] = true
				d.Bundles = append(d.Bundles, describeBundle(*item.Bundle))
			}
		}
		if item.Worksheet != nil {
			one.Worksheet = &item.Worksheet.WorksheetName
		}
		d.Items = append(d.Items, one)
	}
	return d
}

func describeBundle(b client.BundleInfo) Bundle {
	if b.Type == "" || b.Type == codalab.TypePrivate {
		return Bundle{UUID: b.UUID, LeftOut: "it is gone, or you may not read it"}
	}
	metadata := codalab.Metadata{}
	for key, value := range b.Metadata {
		if key != codalab.SecretsKey {
			metadata[key] = value
		}
	}
	d := Bundle{UUID: b.UUID, Type: b.Type, State: b.State, Command: b.Command, Metadata: metadata, Platform: b.Platform.Copied()}
	if b.Owner != nil {
		d.Owner = b.Owner.UserName
	}
	for _, in := range b.Dependencies { // without the state of now
		d.Dependencies = append(d.Dependencies, codalab.Dependency{
			ChildPath: in.ChildPath, ParentUUID: in.ParentUUID, ParentPath: in.ParentPath, ParentName: in.ParentName,
		})
	}
	return d
}

// check refuses a description that does not hold together.
func (d Description) check() error {
	if d.Format != format {
		return errors.New("it is no exported worksheet")
	}
	if d.Version != version {
		return fmt.Errorf("it has version %d, and this program reads version %d", d.Version, version)
	}
	if err := d.checkCounts(); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, b := range d.Bundles {
		if !codalab.IsUUID(b.UUID) {
			return fmt.Errorf("%q is not a uuid", b.UUID)
		}
		if known[b.UUID] {
			return fmt.Errorf("bundle %s is there twice", b.UUID)
		}
		known[b.UUID] = true
		if err := b.check(); err != nil {
			return fmt.Errorf("bundle %s: %w", b.UUID, err)
		}
	}
	for _, item := range d.Items {
		if item.Type == codalab.ItemBundle && !known[item.Bundle] {
			return fmt.Errorf("it has an item for bundle %q, and no such bundle", item.Bundle)
		}
	}
	return nil
}

// checkCounts refuses more items or bundles than a worksheet has.
func (d Description) checkCounts() error {
	if n := max(len(d.Items), len(d.Bundles)); n > mostItems {
		return &TooLargeError{fmt.Sprintf("it has %d items or bundles, and may have %d", n, mostItems)}
	}
	return nil
}

func (b Bundle) check() error {
	if b.Contents == nil {
		return nil
	}
	below, ok := strings.CutPrefix(b.Contents.Path, contentsName+b.UUID+"/")
	switch {
	case !b.State.Final():
		return fmt.Errorf("it has contents in state %q", b.State)
	case b.Contents.Type == codalab.TargetDirectory && ok && below == "":
		return nil
	case b.Contents.Type == codalab.TargetFile && ok && below != "" && path.Base(below) == below:
		return nil
	}
	return fmt.Errorf("its contents are a %q at %q", b.Contents.Type, b.Contents.Path)
}
