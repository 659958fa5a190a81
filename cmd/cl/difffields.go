package main

import (
	"slices"

	"github.com/cl-slurm/cl-slurm/cmd/internal/compare"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// settingPrefix begins the name of a setting of a sweep among the fields of a difference.
const settingPrefix = "setting/"

// diffFields returns the fields that differ in two bundles, and their times, uses of resources and platforms.
func diffFields(a, b client.BundleInfo) (fields, measured []compare.Value) {
	fields, measured = []compare.Value{}, []compare.Value{}
	inA, inB := comparedFields(a), comparedFields(b)
	for _, name := range diffOrder(a, b) {
		v := compare.Value{Name: name, A: inA[name], B: inB[name]}
		if codalab.PythonStr(v.A) != codalab.PythonStr(v.B) {
			fields = append(fields, v)
		}
	}
	for _, name := range []string{"time", "time_queued", "memory_max", "cpu_hours", "gpu_hours", "energy"} {
		v := compare.Value{Name: name, A: given(fieldOf(a, name)), B: given(fieldOf(b, name))}
		if codalab.PythonStr(v.A) != codalab.PythonStr(v.B) {
			measured = append(measured, v)
		}
	}
	for _, name := range codalab.PlatformFacts(a.Platform, b.Platform) {
		v := compare.Value{Name: name, A: given(a.Platform.Fact(name)), B: given(b.Platform.Fact(name))}
		if v.A != v.B {
			measured = append(measured, v)
		}
	}
	return fields, measured
}

// diffOrder are the names of the fields that are compared, in the order in which they are shown.
func diffOrder(a, b client.BundleInfo) []string {
	names := []string{"bundle_type", "command"}
	for _, of := range []client.BundleInfo{a, b} {
		for _, d := range of.Dependencies {
			names = append(names, "dependencies/"+d.ChildPath)
		}
		for _, s := range of.Metadata.Settings() {
			names = append(names, settingPrefix+s.Name)
		}
	}
	names = append(names, "docker_image")
	names = append(names, codalab.RequestKeys()...)
	names = append(names, "tags", codalab.SecretsKey, "state", "exitcode", "failure_message")
	var once []string
	for _, name := range names {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once
}

// comparedFields returns the fields of a bundle that are compared; nil for those that it has not.
func comparedFields(b client.BundleInfo) map[string]any {
	fields := map[string]any{"tags": given(plainTags(b.Metadata))}
	for _, name := range append(codalab.RequestKeys(), "bundle_type", "command", "docker_image", codalab.SecretsKey, "state", "exitcode", "failure_message") {
		fields[name] = given(fieldOf(b, name))
	}
	for _, d := range b.Dependencies {
		fields["dependencies/"+d.ChildPath] = joinPath(d.ParentName+"("+d.ParentUUID+")", d.ParentPath)
	}
	for _, s := range b.Metadata.Settings() {
		fields[settingPrefix+s.Name] = s.Value
	}
	return fields
}

// plainTags returns the tags without those of a sweep.
func plainTags(m codalab.Metadata) (tags []any) {
	for _, tag := range m.TagsOutsideSweep() {
		tags = append(tags, tag)
	}
	return tags
}

// given returns a value, nil for an empty one.
func given(v any) any {
	if empty(v) {
		return nil
	}
	return v
}
