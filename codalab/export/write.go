package export

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/provenance"
)

// Options are those of Write.
type Options struct {
	// Server is the address of the server, for people and their browsers.
	Server string
	// NoContents leaves out the contents of all bundles.
	NoContents bool
	// MostEntries bounds the files of contents, for which Write needs memory; 0 for any number. The contents of bundles with
	// more are left out, or what is left of them.
	MostEntries int
}

// Summary describes an archive that Write has written.
type Summary struct {
	Description
	// Bytes is the size of the bundles' files before they are packed, and Entries the number of all entries of the archive.
	Bytes   int64
	Entries int
}

// LeftOut returns the bundles whose contents the archive lacks, though they were wanted.
func (d Description) LeftOut() []Bundle {
	var list []Bundle
	for _, b := range d.Bundles {
		if b.LeftOut != "" && !b.Bare() {
			list = append(list, b)
		}
	}
	return list
}

// notWanted is the reason for Options.NoContents.
const notWanted = "the archive was made without contents"

// Prepare begins an archive of a worksheet that has been read with its items. One over a bound of worksheet.json is a
// *TooLargeError. It reads nothing more: what the page shows may take long, and Write reads it after the contents.
func Prepare(from *client.Client, sheet client.Worksheet, o Options) (*Exporter, error) {
	e := newExporter(from, sheet, o)
	if err := e.checkRoom(); err != nil {
		return nil, fmt.Errorf("export worksheet: %w", err)
	}
	return e, nil
}

// Write writes the archive, as far as the client's user may read the worksheet. It is called once. After an error the archive
// is of no use: it has no directory, so that no program takes it for a ZIP. A bundle that cannot be read, or has not ended, is
// no error: see Description.LeftOut. Progress is called with numbers of bytes of contents, if it is set; their sum is Size.
func (e *Exporter) Write(ctx context.Context, w io.Writer, progress func(n int64)) (Summary, error) {
	e.archive, e.tell = newArchive(w), progress
	for i := range e.Bundles {
		e.places[e.Bundles[i].UUID] = i
		if err := e.contents(ctx, &e.Bundles[i]); err != nil {
			return Summary{}, fmt.Errorf("export bundle %s: %w", e.Bundles[i].UUID, err)
		}
	}
	size := e.archive.bytes
	if err := e.documents(ctx); err != nil {
		return Summary{}, fmt.Errorf("export worksheet: %w", err)
	}
	if err := e.archive.close(e.at); err != nil {
		return Summary{}, err
	}
	return Summary{Description: e.Description, Bytes: size, Entries: e.archive.entries}, nil
}

// Exporter writes a worksheet as an archive. It is made by Prepare.
type Exporter struct {
	Description
	archive *archive
	from    *client.Client
	options Options
	sheet   client.Worksheet
	progress
	// places are those of the bundles in the description, by uuid.
	places map[string]int
	// at is the time of entries that belong to no bundle.
	at time.Time
	// mostDirectory are the bytes of the ZIP's directory beyond which no bundle's file is added.
	mostDirectory int64
}

func newExporter(from *client.Client, sheet client.Worksheet, o Options) *Exporter {
	const rest = 1 << 20 // for the last name, and the files that are not of bundles
	return &Exporter{
		from: from, options: o, sheet: sheet, Description: describe(sheet, o.Server),
		places: map[string]int{}, at: lastChange(sheet), mostDirectory: mostDirectory - rest,
	}
}

// lastChange is the time of a worksheet's last change; the zero time if the server tells none.
func lastChange(w client.Worksheet) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999"} {
		if t, err := time.Parse(layout, w.DateLastModified); err == nil {
			return t
		}
	}
	return time.Time{}
}

// documents adds all files but those of bundles.
func (e *Exporter) documents(ctx context.Context) error {
	if err := e.archive.written(pageName, e.at, func(w io.Writer) error { return e.page(ctx, w) }); err != nil {
		return err
	}
	description, err := e.encode()
	if err != nil {
		return err
	}
	if err := e.archive.text(descriptionName, description, e.at); err != nil {
		return err
	}
	var lines bytes.Buffer
	for _, line := range client.ItemLines(e.sheet.Items) {
		lines.WriteString(line + "\n")
	}
	if err := e.archive.text(linesName, lines.Bytes(), e.at); err != nil {
		return err
	}
	crate, err := e.provenance(ctx)
	if err != nil {
		return err
	}
	return e.archive.text(provenance.FileName, crate, e.at)
}

// mostRemark bounds the bytes of LeftOut and Note of a bundle in JSON.
const mostRemark = 300

// checkRoom is a *TooLargeError for a worksheet of which Open would refuse the description, whatever the contents are.
func (d Description) checkRoom() error {
	full := d
	full.Bundles = slices.Clone(d.Bundles)
	for i, b := range full.Bundles {
		full.Bundles[i].Contents = &Contents{Type: codalab.TargetDirectory, Path: contentsName + b.UUID + "/" + fileName(b.Name())}
		full.Bundles[i].Note = strings.Repeat(" ", mostRemark)
	}
	_, err := full.encode()
	return err
}

// encode returns the file worksheet.json, or a *TooLargeError for one that Open refuses.
func (d Description) encode() ([]byte, error) {
	if err := d.checkCounts(); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(d)
	if err == nil {
		_, err = io.Copy(io.Discard, &weigher{Reader: bytes.NewReader(out.Bytes())})
	}
	if err != nil {
		return nil, fmt.Errorf("encode the description: %w", err)
	}
	return out.Bytes(), nil
}

// provenance returns the document about where the bundles came from.
func (e *Exporter) provenance(ctx context.Context) ([]byte, error) {
	crate := provenance.New(e.heading(), "The worksheet "+e.Worksheet.Name+" of "+e.Server+", and where its bundles came from", e.place)
	known := knownBundles{Client: e.from, bundles: map[string]client.BundleInfo{}}
	for _, b := range e.sheet.Bundles {
		known.bundles[b.UUID] = b
	}
	for _, b := range e.Bundles {
		if b.Type == "" {
			continue
		}
		run, err := provenance.Read(ctx, known, b.UUID)
		if err != nil {
			return nil, fmt.Errorf("bundle %s: %w", b.UUID, err)
		}
		crate.AddRun(run)
	}
	return crate.JSON()
}

// heading is the worksheet's title, or else its name.
func (e *Exporter) heading() string {
	if e.Worksheet.Title != "" {
		return e.Worksheet.Title
	}
	return e.Worksheet.Name
}

// place is the address of a target: in the archive if that has it, else on the server.
func (e *Exporter) place(t codalab.Target) provenance.Place {
	if c := e.contentsOf(t.BundleUUID); c != nil {
		return provenance.Place{ID: address(joined(*c, t.Subpath)), File: c.Type == codalab.TargetFile}
	}
	return provenance.OnServer(e.Server)(t)
}

// contentsOf returns the contents of a bundle in the archive; nil if there are none.
func (e *Exporter) contentsOf(uuid string) *Contents {
	if i, ok := e.places[uuid]; ok {
		return e.Bundles[i].Contents
	}
	return nil
}

// knownBundles is a server of which some bundles were read before.
type knownBundles struct {
	*client.Client
	bundles map[string]client.BundleInfo
}

// Bundle returns a bundle that is known, or reads it.
func (k knownBundles) Bundle(ctx context.Context, uuid string, include ...string) (client.BundleInfo, error) {
	if b, ok := k.bundles[uuid]; ok {
		return b, nil
	}
	return k.Client.Bundle(ctx, uuid, include...)
}
