package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes a CycloneDX document: each program of the release, and the modules that Go
// has written into it.
func (r *release) writeSBOM() error {
	version := strings.TrimPrefix(r.version, "v")
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.time.Format(time.RFC3339),
		Component: &cyclonedx.Component{
			BOMRef: "cl-slurm", Type: cyclonedx.ComponentTypeApplication, Name: "cl-slurm", Version: version,
		},
	}
	modules := map[string]cyclonedx.Component{}
	var programs []cyclonedx.Component
	var graph []cyclonedx.Dependency
	for _, p := range r.platforms {
		for _, name := range p.programs() {
			path := r.staged(p.String(), p.exe(name))
			used, err := modulesOf(path)
			if err != nil {
				return err
			}
			sum, err := digest(path)
			if err != nil {
				return err
			}
			ref := name + "_" + p.String()
			programs = append(programs, cyclonedx.Component{
				BOMRef: ref, Type: cyclonedx.ComponentTypeApplication, Name: name, Version: version,
				Description: name + " for " + p.os + "/" + p.arch,
				Hashes:      &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: sum}},
			})
			maps.Copy(modules, used)
			refs := slices.Sorted(maps.Keys(used))
			graph = append(graph, cyclonedx.Dependency{Ref: ref, Dependencies: &refs})
		}
	}
	components := programs
	for _, ref := range slices.Sorted(maps.Keys(modules)) {
		components = append(components, modules[ref])
	}
	bom.Components, bom.Dependencies = &components, &graph
	f, err := os.Create(filepath.Join(r.out, "cl-slurm_"+version+".cdx.json"))
	if err != nil {
		return err
	}
	err = cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return errors.Join(err, f.Close())
}

// modulesOf returns the modules in a program, the standard library among them, by their package
// URLs.
func modulesOf(path string) (map[string]cyclonedx.Component, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read modules: %w", err)
	}
	used := map[string]cyclonedx.Component{}
	add := func(m *debug.Module) error {
		c := cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
			PackageURL: "pkg:golang/" + m.Path + "@" + m.Version,
		}
		c.BOMRef = c.PackageURL
		if m.Sum != "" { // the digest of go.sum
			sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
			if err != nil {
				return fmt.Errorf("read digest of %s: %w", m.Path, err)
			}
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
		}
		used[c.BOMRef] = c
		return nil
	}
	if err := add(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}); err != nil {
		return nil, err
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if err := add(m); err != nil {
			return nil, err
		}
	}
	return used, nil
}
