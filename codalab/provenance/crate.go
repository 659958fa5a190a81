package provenance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// FileName is the name of the document in a crate.
const FileName = "ro-crate-metadata.json"

// The addresses of the specifications.
const (
	crateContext = "https://w3id.org/ro/crate/1.1/context"
	crateVersion = "https://w3id.org/ro/crate/1.1"
	runContext   = "https://w3id.org/ro/terms/workflow-run/context"
	runProfile   = "https://w3id.org/ro/wfrun/process/0.5"
	dockerImage  = "https://w3id.org/ro/terms/workflow-run#DockerImage"
)

// Place is the place of a bundle, or of a part of it.
type Place struct {
	// ID is a URL, or a path in the crate, whose special characters are escaped as in a URL. That of a directory in the crate
	// ends with a slash.
	ID string
	// File is set for a file, and not for a directory.
	File bool
}

// Crate collects runs and bundles, and writes the document. It is made by New.
type Crate struct {
	name, description string
	locate            func(codalab.Target) Place
	entities          []entity
	known             map[string]entity
	parts, mentions   []any
	published         time.Time
}

// entity is an object of the document, by properties.
type entity map[string]any

// ref refers to an entity.
func ref(id string) entity { return entity{"@id": id} }

// New returns an empty crate. locate returns the places of bundles.
func New(name, description string, locate func(codalab.Target) Place) *Crate {
	return &Crate{name: name, description: description, locate: locate, known: map[string]entity{}}
}

// put adds an entity, or what is new of it to the one of its id, and refers to it.
func (c *Crate) put(id string, e entity) entity {
	old := c.known[id]
	if old == nil {
		e["@id"] = id
		c.known[id], c.entities = e, append(c.entities, e)
		return ref(id)
	}
	for key, value := range e {
		if _, ok := old[key]; !ok {
			old[key] = value
		}
	}
	return ref(id)
}

// part adds a place with contents, and refers to it.
func (c *Crate) part(p Place, name string, more entity) entity {
	e := entity{"@type": "Dataset", "name": name}
	if p.File {
		e["@type"] = "File"
	}
	maps.Copy(e, more)
	if c.known[p.ID] == nil {
		c.parts = append(c.parts, ref(p.ID))
	}
	return c.put(p.ID, e)
}

// bundle adds a bundle's contents, and refers to them.
func (c *Crate) bundle(r Run) entity {
	b := r.Bundle
	more := entity{"identifier": b.UUID}
	if text := b.Metadata.String("description"); text != "" {
		more["description"] = text
	}
	if license := b.Metadata.String("license"); license != "" {
		more["license"] = license
	}
	if sources := sources(b.Metadata); len(sources) == 1 {
		more["isBasedOn"] = sources[0]
	} else if len(sources) > 1 {
		more["isBasedOn"] = sources
	}
	if created := b.Metadata.Time("created"); !created.IsZero() {
		more["dateCreated"] = iso(created)
		c.saw(created)
	}
	if r.Owner != "" {
		more["author"] = c.person(r.Owner)
	}
	place := c.locate(codalab.Target{BundleUUID: b.UUID})
	place.File = place.File || r.File
	return c.part(place, bundleName(b), more)
}

// sources are the address from which a bundle came, and the uuids of the bundles of which it is a copy.
func sources(m codalab.Metadata) (list []string) {
	if source := m.String("source_url"); source != "" {
		list = append(list, source)
	}
	for _, tag := range m.Strings("tags") {
		if uuid, ok := strings.CutPrefix(tag, codalab.CopyTag); ok && codalab.IsUUID(uuid) {
			list = append(list, uuid)
		}
	}
	return list
}

func bundleName(b codalab.Bundle) string {
	if name := b.Metadata.String("name"); name != "" {
		return name
	}
	return b.UUID
}

func (c *Crate) person(name string) entity {
	return c.put("#user-"+escape(name), entity{"@type": "Person", "name": name})
}

// saw notes a time at which something in the crate came about.
func (c *Crate) saw(t time.Time) {
	if t.After(c.published) {
		c.published = t
	}
}

// iso is a time as the document has it: of all forms of ISO 8601, the profile wants an offset in digits.
func iso(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05+00:00") }

// JSON returns the document. Its date is that of the newest thing in it, so that the same crate has the same document at any
// time.
func (c *Crate) JSON() ([]byte, error) {
	root := entity{
		"@id": "./", "@type": "Dataset", "name": c.name, "description": c.description, "datePublished": iso(c.published),
		"license":    ref("#license"),
		"conformsTo": ref(runProfile), "hasPart": c.parts, "mentions": c.mentions,
	}
	if len(c.parts) == 0 {
		delete(root, "hasPart")
	}
	if len(c.mentions) == 0 { // a crate without runs is no Process Run Crate
		delete(root, "mentions")
		delete(root, "conformsTo")
	}
	graph := []entity{
		{"@id": FileName, "@type": "CreativeWork", "conformsTo": ref(crateVersion), "about": ref("./")},
		root,
		{
			"@id": "#license", "@type": "CreativeWork", "name": "The licences of the bundles",
			"description": "The owners of the bundles state their licences. Where they state none, none is given.",
		},
	}
	if len(c.mentions) > 0 {
		graph = append(graph, entity{"@id": runProfile, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"})
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(map[string]any{"@context": []string{crateContext, runContext}, "@graph": append(graph, c.entities...)}); err != nil {
		return nil, fmt.Errorf("write provenance: %w", err)
	}
	return text.Bytes(), nil
}
