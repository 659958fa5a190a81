package provenance

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Run is a run with the known facts about its inputs.
type Run struct {
	codalab.Bundle
	// Owner is the owner's name; empty if the reader may not know it.
	Owner string
	// File is set if the contents are known to be a file.
	File bool
	// Inputs are the run's dependencies.
	Inputs []Input
}

// Input is an input of a run.
type Input struct {
	codalab.Dependency
	// Tags are those of the parent; none if the reader may not read it.
	Tags []string
	// File is set if it is known to be a file.
	File bool
}

// AddRun adds a run with its inputs and its results. Of other bundles it adds the contents.
func (c *Crate) AddRun(r Run) {
	if r.Type != codalab.TypeRun {
		c.bundle(r)
		return
	}
	id := "#run-" + r.UUID
	if c.known[id] != nil {
		return
	}
	action := entity{
		"@type": "CreateAction", "name": bundleName(r.Bundle), "description": r.CommandText(),
		"identifier": c.property(r, "uuid", r.UUID), "instrument": c.instrument(r), "object": c.objects(r), "result": c.results(r),
	}
	if r.Owner != "" {
		action["agent"] = c.person(r.Owner)
	}
	if image := c.image(r.Metadata); image != nil {
		action["containerImage"] = image
	}
	if places := c.attempts(r); len(places) > 0 {
		action["location"] = places
	}
	if use := c.usage(r); len(use) > 0 {
		action["resourceUsage"] = use
	}
	c.addOutcome(r, action)
	c.mentions = append(c.mentions, c.put(id, action))
}

// addOutcome adds the times and the state.
func (c *Crate) addOutcome(r Run, action entity) {
	if started := r.Metadata.Time("started"); !started.IsZero() {
		action["startTime"] = iso(started)
	}
	status := "Potential"
	switch {
	case r.State == codalab.StateReady:
		status = "Completed"
	case r.State.Final():
		status = "Failed"
		action["error"] = r.Metadata.String("failure_message")
		if action["error"] == "" {
			action["error"] = string(r.State)
		}
	case r.State.OnWorker():
		status = "Active"
	}
	action["actionStatus"] = "http://schema.org/" + status + "ActionStatus"
	if ended := r.Metadata.Time("last_updated"); r.State.Final() && !ended.IsZero() {
		action["endTime"] = iso(ended)
		c.saw(ended)
	}
}

// instrument is the command. Its version is the commit of its directory, if it has one.
func (c *Crate) instrument(r Run) entity {
	e := entity{"@type": "SoftwareApplication", "name": r.CommandText()}
	tags, notes := r.Metadata.Strings("tags"), []string{}
	if commit := tagged(tags, CommitTag); commit != "" {
		e["softwareVersion"] = commit
		if slices.Contains(tags, DirtyTag) {
			e["softwareVersion"] = commit + " with uncommitted changes"
		}
		if branch := tagged(tags, BranchTag); branch != "" {
			notes = append(notes, "Of the git branch "+branch)
		}
	}
	if programs := c.software(r); len(programs) > 0 {
		e["softwareRequirements"] = programs
		if r.Platform.Imported {
			notes = append(notes, "The software: "+copied)
		}
	}
	if len(notes) > 0 {
		e["description"] = strings.Join(notes, ". ")
	}
	return c.put("#command-"+r.UUID, e)
}

// objects are the inputs, the settings of a sweep, and the requests.
func (c *Crate) objects(r Run) []entity {
	var list []entity
	dirty := slices.Contains(r.Metadata.Strings("tags"), DirtyTag)
	keys := map[codalab.Target][]string{} // an input may have several
	for _, in := range r.Inputs {
		of := codalab.Target{BundleUUID: in.ParentUUID, Subpath: in.ParentPath}
		keys[of] = append(keys[of], in.ChildPath)
	}
	for _, in := range r.Inputs {
		of := codalab.Target{BundleUUID: in.ParentUUID, Subpath: in.ParentPath}
		names := keys[of]
		if names == nil {
			continue // it is there with all its keys
		}
		delete(keys, of)
		place := c.locate(of)
		more := entity{"identifier": in.ParentUUID, "alternateName": names[0]}
		if len(names) > 1 {
			more["alternateName"] = names
		}
		digest := tagged(in.Tags, UploadTag)
		ids := []string{in.ParentUUID}
		if digest != "" {
			ids = append(ids, digest)
		}
		known := digestOf(r.Platform, names)
		sum, isFile := strings.CutPrefix(known, codalab.FileDigest)
		if place.File = place.File || in.File || isFile; isFile {
			more["sha256"] = sum
		} else if known != "" {
			ids = append(ids, known)
		}
		if len(ids) > 1 {
			more["identifier"] = ids
		}
		name := in.ParentName
		if name == "" {
			name = in.ParentUUID
		}
		if in.ParentPath != "" {
			name += "/" + in.ParentPath
		}
		list = append(list, c.part(place, name, more))
		if digest != "" && dirty {
			patch := c.locate(codalab.Target{BundleUUID: in.ParentUUID, Subpath: DifferenceName})
			patch.File = true
			list = append(list, c.part(patch, "Uncommitted difference", entity{"encodingFormat": "text/x-diff"}))
		}
	}
	for _, s := range r.Metadata.Settings() {
		list = append(list, c.property(r, "setting/"+s.Name, s.Value))
	}
	for _, k := range codalab.MetadataKeys(codalab.TypeRun) {
		value := r.Metadata[k.Key]
		if strings.HasPrefix(k.Key, "request_") && value != nil && value != "" {
			list = append(list, c.property(r, k.Key, value))
		}
	}
	return slices.CompactFunc(list, func(a, b entity) bool { return a["@id"] == b["@id"] })
}

// results are the files and the exit code.
func (c *Crate) results(r Run) []entity {
	list := []entity{c.bundle(r)}
	if r.Metadata["exitcode"] != nil {
		list = append(list, c.property(r, "exitcode", r.Metadata.Int("exitcode")))
	}
	return list
}

// property adds a value of a run.
func (c *Crate) property(r Run, name string, value any) entity {
	return c.put("#"+r.UUID+"/"+escape(name), entity{"@type": "PropertyValue", "name": name, "value": value})
}

// usage has what the run used, in seconds and bytes.
func (c *Crate) usage(r Run) []entity {
	var list []entity
	for _, key := range []string{"time", "time_user", "time_system", "memory_max"} {
		if value := r.Metadata.Float(key); value > 0 {
			list = append(list, c.property(r, key, value))
		}
	}
	if cost := r.Cost; cost != nil {
		for _, one := range []struct {
			name  string
			value float64
		}{{"queued_seconds", cost.QueuedSeconds}, {"allocated_seconds", cost.AllocatedSeconds}, {"energy_joules", float64(cost.EnergyJoules)}} {
			if one.value > 0 {
				list = append(list, c.property(r, one.name, one.value))
			}
		}
	}
	return list
}

// attempts are the places of all attempts, the last one being that of the results.
func (c *Crate) attempts(r Run) []entity {
	history := r.Metadata.Strings("remote_history")
	remote, job := r.Metadata.String("remote"), r.Metadata.String("job_handle")
	if len(history) > 1 && job != "" {
		history = history[1:] // the first one is the bridge, which has claimed the run
	}
	if len(history) == 0 && remote != "" {
		history = []string{remote}
	}
	var list []entity
	for i, name := range history {
		place := entity{"@type": "Place", "name": name, "description": fmt.Sprintf("Attempt %d of %d", i+1, len(history))}
		if i == len(history)-1 && r.Platform != nil {
			c.addPlatform(r, place)
		}
		list = append(list, c.put(fmt.Sprintf("#%s/attempt-%d", r.UUID, i+1), place))
	}
	return list
}

// image is a run's image; nil if it has none. The digest is there once a worker has told it.
func (c *Crate) image(m codalab.Metadata) entity {
	text := m.String("docker_image")
	if text == "" {
		text = m.String("request_docker_image")
	}
	if text == "" {
		return nil
	}
	e := entity{"@type": "ContainerImage", "additionalType": ref(dockerImage), "name": text}
	if named, err := reference.ParseNormalizedNamed(text); err == nil {
		e["registry"], e["name"] = reference.Domain(named), reference.Path(named)
		if tagged, ok := named.(reference.Tagged); ok {
			e["tag"] = tagged.Tag()
		}
		if pinned, ok := named.(reference.Digested); ok {
			e["sha256"] = pinned.Digest().Encoded()
		}
	}
	return c.put("docker://"+(&url.URL{Path: text}).EscapedPath(), e)
}

// escape makes a text a part of an id.
func escape(text string) string { return url.PathEscape(text) }
