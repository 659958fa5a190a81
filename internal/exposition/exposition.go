// Package exposition writes metrics in Prometheus' text format ("Exposition formats", version 0.0.4).
//
// It is for programs that have to be small. Prometheus' own library needs that of Protocol Buffers, and both together take
// 0.8 MB of the workers' image, which has cl-worker-manager in it. A test compares the texts with those of the library.
package exposition

import (
	"bytes"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ContentType is the type of a text in HTTP.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Kind is the type of a metric.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	histogram Kind = "histogram"
)

// Desc describes a metric. Labels are the names of its labels, sorted.
type Desc struct {
	Name, Help string
	Kind       Kind
	Labels     []string
}

// HistogramDesc describes a metric that shows a Histogram.
func HistogramDesc(name, help string, labels ...string) Desc {
	return Desc{name, help, histogram, labels}
}

// Text is a text of metrics. The zero value is empty.
type Text struct {
	// Labels are pairs of the names and values that all samples have besides their own, sorted by name.
	Labels [][2]string

	families map[string]*family
}

type family struct {
	Desc

	samples bytes.Buffer
}

// Add adds a sample of a metric, with the values of its labels.
func (t *Text) Add(d Desc, value float64, values ...string) {
	t.family(d).write("", t.labels(d, values, ""), value)
}

// AddHistogram adds the counts of a histogram.
func (t *Text) AddHistogram(d Desc, c Counts, values ...string) {
	f := t.family(d)
	for i, bound := range append(slices.Clone(c.Bounds), math.Inf(1)) {
		f.write("_bucket", t.labels(d, values, format(bound)), float64(c.Below[i]))
	}
	f.write("_sum", t.labels(d, values, ""), c.Sum)
	f.write("_count", t.labels(d, values, ""), float64(c.Below[len(c.Bounds)]))
}

// WriteTo writes the metrics, sorted by name.
func (t *Text) WriteTo(w io.Writer) (int64, error) {
	names := make([]string, 0, len(t.families))
	for name := range t.families {
		names = append(names, name)
	}
	slices.Sort(names)
	var all bytes.Buffer
	for _, name := range names {
		f := t.families[name]
		all.WriteString("# HELP " + name + " " + escapeHelp(f.Help) + "\n# TYPE " + name + " " + string(f.Kind) + "\n")
		all.Write(f.samples.Bytes())
	}
	n, err := w.Write(all.Bytes())
	return int64(n), err
}

func (t *Text) family(d Desc) *family {
	f := t.families[d.Name]
	if f == nil {
		if t.families == nil {
			t.families = map[string]*family{}
		}
		f = &family{Desc: d}
		t.families[d.Name] = f
	}
	return f
}

// labels returns the labels of a sample in braces; empty for none. le is the bound of a bucket; empty for none.
func (t *Text) labels(d Desc, values []string, le string) string {
	all := slices.Clone(t.Labels)
	for i, name := range d.Labels {
		all = append(all, [2]string{name, values[i]})
	}
	slices.SortFunc(all, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	if le != "" {
		all = append(all, [2]string{"le", le})
	}
	if len(all) == 0 {
		return ""
	}
	parts := make([]string, len(all))
	for i, pair := range all {
		parts[i] = pair[0] + `="` + escapeValue(pair[1]) + `"`
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (f *family) write(suffix, labels string, value float64) {
	f.samples.WriteString(f.Name + suffix + labels + " " + format(value) + "\n")
}

// format writes a number as Go does, which is the format's rule.
func format(value float64) string {
	if math.IsInf(value, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(value, 'g', -1, 64)
}

func escapeHelp(text string) string { return strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(text) }

func escapeValue(text string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(text)
}

// Histogram counts values in buckets. Its methods are safe for concurrent use.
type Histogram struct {
	bounds []float64

	mu    sync.Mutex
	below []uint64 // by bucket, the last one for all other values
	sum   float64
}

// NewHistogram returns a histogram with n buckets: the first is up to a bound, and each further one up to a multiple of the
// one before it.
func NewHistogram(bound, factor float64, n int) *Histogram {
	h := &Histogram{below: make([]uint64, n+1)}
	for range n {
		h.bounds = append(h.bounds, bound)
		bound *= factor
	}
	return h
}

// Observe counts a value.
func (h *Histogram) Observe(value float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := slices.BinarySearch(h.bounds, value)
	h.below[i]++
	h.sum += value
}

// Counts are those of a histogram: for each bound the number of values up to it, and then the number of all.
type Counts struct {
	Bounds []float64
	Below  []uint64
	Sum    float64
}

// Counts returns the counts so far.
func (h *Histogram) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := Counts{Bounds: h.bounds, Below: slices.Clone(h.below), Sum: h.sum}
	for i := 1; i < len(c.Below); i++ {
		c.Below[i] += c.Below[i-1]
	}
	return c
}
