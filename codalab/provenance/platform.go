package provenance

import (
	"fmt"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// software are the programs between the server and the command.
func (c *Crate) software(r Run) []entity {
	if r.Platform == nil {
		return nil
	}
	var list []entity
	for _, s := range r.Platform.Software {
		id := "#software/" + escape(s.Name)
		e := entity{"@type": "SoftwareApplication", "name": s.Name}
		if url := homepage(s.Name); url != "" {
			e["url"] = url
		}
		if s.Version != "" {
			id += "/" + escape(s.Version)
			e["softwareVersion"] = s.Version
		}
		list = append(list, c.put(id, e))
	}
	return list
}

// homepage returns the address of a program; empty if it is not known.
func homepage(program string) string {
	switch program {
	case "Slurm":
		return "https://slurm.schedmd.com/"
	case "apptainer":
		return "https://apptainer.org/"
	case "singularity":
		return "https://sylabs.io/singularity/"
	case "docker":
		return "https://www.docker.com/"
	case "podman":
		return "https://podman.io/"
	}
	return ""
}

// copied is the description of what no worker of the server has reported.
const copied = "as the archive or the server says from which the run was copied"

// addPlatform adds the site, the GPUs and their driver to the place of a run's last attempt.
func (c *Crate) addPlatform(r Run, place entity) {
	if r.Platform.Imported {
		place["description"] = fmt.Sprint(place["description"], ", ", copied)
	}
	if site := r.Platform.Site; site != "" {
		place["containedInPlace"] = c.put("#site/"+escape(site), entity{"@type": "Place", "name": site})
	}
	var properties []entity
	for _, f := range r.Platform.Facts() {
		if f.Name == codalab.FactGPUs || f.Name == codalab.FactGPUDriver {
			properties = append(properties, c.property(r, f.Name, f.Text))
		}
	}
	if len(properties) > 0 {
		place["additionalProperty"] = properties
	}
}

// digestOf returns the digest of an input that has these keys; empty if it is not known.
func digestOf(p *codalab.Platform, keys []string) string {
	if p == nil {
		return ""
	}
	for _, in := range p.Inputs {
		if slices.Contains(keys, in.ChildPath) {
			return in.Digest
		}
	}
	return ""
}
