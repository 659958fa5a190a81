package codalab

import (
	"maps"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// MetadataLike returns the metadata for a new bundle like b, with the given values in place of b's own. A run gets the very
// image of the old run. It is no member of its sweep, and has no CopyTag.
func (b Bundle) MetadataLike(given Metadata) Metadata {
	m := maps.Clone(b.Metadata)
	if m == nil {
		m = Metadata{}
	}
	m["tags"] = slices.DeleteFunc(m.TagsOutsideSweep(), func(tag string) bool { return strings.HasPrefix(tag, CopyTag) })
	if image := m.String("docker_image"); b.Type == TypeRun && image != "" {
		m["request_docker_image"] = image
	}
	for _, k := range MetadataKeys(b.Type) {
		if k.Generated {
			delete(m, k.Key)
		}
		if v, ok := given[k.Key]; ok {
			m[k.Key] = v
		}
	}
	if names, ok := given[SecretsKey]; ok && b.Type == TypeRun {
		m[SecretsKey] = names
	}
	return m
}

// WithDefaults adds the defaults of the keys that a new bundle of a type must have, and m lacks: an older client may have left
// some out.
func (m Metadata) WithDefaults(bundleType string) {
	for _, k := range MetadataKeys(bundleType) {
		if !k.Generated && !k.Optional && !m.Has(k.Key) {
			m[k.Key] = k.Default
		}
	}
}

// TagsOutsideSweep returns the tags of a run that do not tell of its sweep: a run with other settings is none of its members.
func (m Metadata) TagsOutsideSweep() []string {
	tags := append([]string{}, m.Strings("tags")...)
	if m.Sweep() == "" {
		return tags
	}
	of := SweepTags(m.Sweep(), m.Settings())
	return slices.DeleteFunc(tags, func(tag string) bool { return slices.Contains(of, tag) })
}

// low matches the words in keys whose lowest value is the best one.
var low = lazyregexp.New(`(?i)(^|[^a-z])(loss|err|error|perplexity|ppl|mse|rmse|mae|wer|cer|time|latency|seconds)([^a-z]|$)`)

// LowestIsBest reports whether the name of a value in a file, such as /stats.json:loss, means that its lowest value is the
// best one.
func LowestIsBest(genpath string) bool {
	_, key, _ := strings.Cut(genpath, ":")
	return low().MatchString(":" + key)
}
