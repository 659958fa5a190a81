package main

import (
	"context"
	"maps"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// metadataFlags adds a flag for every metadata key that a user may set for a bundle of this
// type. It returns a function that reads the flags (bundle_cli.py: metadata_arguments).
func metadataFlags(flags *pflag.FlagSet, bundleType string) func() codalab.Metadata {
	var read []func(codalab.Metadata)
	for _, k := range codalab.MetadataKeys(bundleType) {
		if k.Generated {
			continue
		}
		value := metadataFlag(flags, k)
		read = append(read, func(m codalab.Metadata) { m[k.Key] = value() })
	}
	return func() codalab.Metadata {
		m := codalab.Metadata{}
		for _, r := range read {
			r(m)
		}
		return m
	}
}

// defaultMetadata returns the metadata of a bundle whose user sets none.
func defaultMetadata(bundleType string) codalab.Metadata {
	m := codalab.Metadata{}
	for _, k := range codalab.MetadataKeys(bundleType) {
		if !k.Generated {
			m[k.Key] = k.Default
		}
	}
	return m
}

// metadataOverrides is metadataFlags for metadata that replaces older metadata: the function returns
// only values that the user has given.
func metadataOverrides(flags *pflag.FlagSet, bundleType string) func() codalab.Metadata {
	all := metadataFlags(flags, bundleType)
	for _, k := range codalab.MetadataKeys(bundleType) {
		if f := flags.Lookup(flagName(k.Key)); f != nil && !k.Generated {
			f.DefValue = "as the old bundle"
		}
	}
	return func() codalab.Metadata { return givenMetadata(flags, all()) }
}

// givenMetadata returns the values that the user has given.
func givenMetadata(flags *pflag.FlagSet, all codalab.Metadata) codalab.Metadata {
	given := codalab.Metadata{}
	for key, value := range all {
		if flags.Changed(flagName(key)) {
			given[key] = value
		}
	}
	return given
}

// flagName is the flag for a key of metadata.
func flagName(key string) string { return strings.ReplaceAll(key, "_", "-") }

func metadataFlag(flags *pflag.FlagSet, k codalab.MetadataKey) func() any {
	name := flagName(k.Key)
	short := map[string]string{"name": "n", "description": "d"}[k.Key]
	preset, _ := k.Default.(string)
	switch k.Type {
	case codalab.TypeBool:
		preset, _ := k.Default.(bool)
		v := flags.BoolP(name, short, preset, k.Help)
		return func() any { return *v }
	case codalab.TypeInt:
		preset, _ := k.Default.(int64)
		v := &wholeNumber{value: preset}
		flags.VarP(v, name, short, k.Help)
		return func() any { return v.value }
	case codalab.TypeList:
		v := argparse.WordsFlag(flags, name, short, k.Help)
		return func() any { return append([]string{}, v.List...) }
	case codalab.TypeSize:
		v := &spelled{text: preset, spell: spellSize, kind: "size"}
		flags.VarP(v, name, short, k.Help)
		return func() any { return v.text }
	case codalab.TypeDuration:
		v := &spelled{text: preset, spell: spellDuration, kind: "time"}
		flags.VarP(v, name, short, k.Help)
		return func() any { return v.text }
	default: // the other types are texts
		v := flags.StringP(name, short, preset, k.Help)
		return func() any { return *v }
	}
}

// checkNew checks the metadata of a bundle to create, after the user has edited them if edit is set.
func (c *cli) checkNew(ctx context.Context, bundleType string, m codalab.Metadata, edit bool) error {
	if edit {
		edited, err := c.editMetadata(ctx, bundleType, m)
		if err != nil {
			return err
		}
		maps.Copy(m, edited)
	}
	if err := checkName(m.String("name")); err != nil {
		return err
	}
	if err := checkRequests(m); err != nil {
		return err
	}
	c.warnOfSmallRequests(m)
	if err := codalab.CheckMetadata(bundleType, m, true); err != nil {
		return refusef("%v", err)
	}
	if bundleType == codalab.TypeRun {
		return checkResumes(m)
	}
	return nil
}

// defaultName derives a bundle's name from a file's name or a run's command.
func defaultName(bundleType, from string) string { return codalab.DefaultName(bundleType, from) }
