package codalab

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Platform describes where, and by which programs, the last attempt of a run ran its command, as far as the run's worker
// knows. A server shows it in the attribute platform of a bundle, and not in the metadata, for the reason that Cost gives.
// CodaLab's own worker sends none, and CodaLab's own server ignores it.
type Platform struct {
	// Site is the name of the cluster.
	Site string `json:"site,omitempty"`
	// GPUs has the model of each GPU that the command had.
	GPUs []string `json:"gpus,omitempty"`
	// GPUDriver is the version of their driver.
	GPUDriver string `json:"gpu_driver,omitempty"`
	// Software has the programs between the server and the command: the worker, the batch system and the container runtime.
	Software []Software `json:"software,omitempty"`
	// Inputs has the digests of the contents of dependencies, in their order, of those whose digests the worker knows.
	// A worker sends them with the end of the run.
	Inputs []InputDigest `json:"inputs,omitempty"`
	// Imported is set by a server that has this from a user who copied the run to it, and from none of its workers.
	Imported bool `json:"imported,omitempty"`
}

// Copied returns what a copy of the run on another server may say of it: all but the inputs' digests, which nobody there can
// compare with contents. It is nil if there is nothing to say.
func (p *Platform) Copied() *Platform {
	if p == nil {
		return nil
	}
	copied := *p
	copied.Inputs = nil
	if copied.IsZero() {
		return nil
	}
	return &copied
}

// Software is a program and its version.
type Software struct {
	Name string `json:"name"`
	// Version is empty if it is not known.
	Version string `json:"version,omitempty"`
}

// InputDigest is the digest of a dependency's contents.
type InputDigest struct {
	ChildPath string `json:"child_path"`
	// Digest is FileDigest and the SHA-256 of a file, or TreeDigest and that of a directory's tree, in hexadecimal.
	Digest string `json:"digest"`
}

// The beginnings of an InputDigest.
const (
	FileDigest = "sha256:"
	// TreeDigest is the SHA-256 over one line for each entry of a directory (package cache).
	TreeDigest = "tree-sha256:"
)

// Bounds of a Platform: any user may run workers.
const (
	mostPlatformText = 120
	mostChildPath    = 240
	mostGPUs         = 64
	mostSoftware     = 8
	mostInputDigests = 32
)

// Bounded returns the platform with a bounded number of short texts. clean makes a text one line without control
// characters. Digests of another form, and those of dependencies with odd or very long names, are left out, and so is Imported.
func (p Platform) Bounded(clean func(string) string) Platform {
	short := func(text string) string {
		text = clean(text[:min(len(text), mostPlatformText)]) // which may be longer
		return strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), mostPlatformText)], ""))
	}
	bounded := Platform{Site: short(p.Site), GPUDriver: short(p.GPUDriver)}
	for _, model := range p.GPUs[:min(len(p.GPUs), mostGPUs)] {
		bounded.GPUs = append(bounded.GPUs, short(model))
	}
	for _, s := range p.Software[:min(len(p.Software), mostSoftware)] {
		if s = (Software{short(s.Name), short(s.Version)}); s.Name != "" {
			bounded.Software = append(bounded.Software, s)
		}
	}
	for _, in := range p.Inputs {
		known := in.valid() && len(in.ChildPath) <= mostChildPath && clean(in.ChildPath) == in.ChildPath
		if known && len(bounded.Inputs) < mostInputDigests {
			bounded.Inputs = append(bounded.Inputs, in)
		}
	}
	return bounded
}

func (in InputDigest) valid() bool {
	for _, kind := range []string{FileDigest, TreeDigest} {
		if digits, ok := strings.CutPrefix(in.Digest, kind); ok {
			return len(digits) == 64 && strings.Trim(digits, "0123456789abcdef") == ""
		}
	}
	return false
}

// IsZero reports whether nothing is known.
func (p Platform) IsZero() bool {
	return p.Site == "" && p.GPUDriver == "" && len(p.GPUs)+len(p.Software)+len(p.Inputs) == 0
}

// Fact is a named text about a platform.
type Fact struct{ Name, Text string }

// The names of facts. Others are those of programs, with the version as the text.
const (
	FactSite      = "site"
	FactGPUs      = "gpus"
	FactGPUDriver = "gpu_driver"
)

// Facts returns the known facts, for people, without the inputs; none if p is nil.
func (p *Platform) Facts() []Fact {
	if p == nil {
		return nil
	}
	facts := []Fact{{FactSite, p.Site}, {FactGPUs, p.gpuText()}, {FactGPUDriver, p.GPUDriver}}
	for _, s := range p.Software {
		facts = append(facts, Fact{s.Name, cmp.Or(s.Version, "of unknown version")})
	}
	return slices.DeleteFunc(facts, func(f Fact) bool { return f.Text == "" })
}

// Fact returns the text of a fact; empty if it is not known.
func (p *Platform) Fact(name string) string {
	for _, f := range p.Facts() {
		if f.Name == name {
			return f.Text
		}
	}
	return ""
}

// PlatformFacts returns the names of the facts that are known of any of these platforms, which may be nil.
func PlatformFacts(platforms ...*Platform) []string {
	var names []string
	for _, p := range platforms {
		for _, f := range p.Facts() {
			if !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	return names
}

// gpuText counts the GPUs by model.
func (p Platform) gpuText() string {
	var models []string
	count := map[string]int{}
	for _, model := range p.GPUs {
		model = cmp.Or(model, "of unknown model")
		if count[model]++; count[model] == 1 {
			models = append(models, model)
		}
	}
	for i, model := range models {
		models[i] = fmt.Sprintf("%d × %s", count[model], model)
	}
	return strings.Join(models, ", ")
}
