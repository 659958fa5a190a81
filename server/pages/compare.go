package pages

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

const (
	// mostCompared is the number of bundles that one page compares, and mostComparedValues that of values in their files.
	mostCompared       = 20
	mostComparedValues = 50
)

// comparison has the contents of compare.html.
type comparison struct {
	// Asked is the number of bundles in the address.
	Asked int
	// Bundles are the columns, in the order of the address.
	Bundles []row
	Rows    []comparedRow
	// Missing are the uuids of bundles that the reader may not read, or that do not exist.
	Missing []string
	// Only is set if the page has only rows that differ.
	Only bool
	// ValuesLeft is the number of values in files that are not shown.
	ValuesLeft int
}

// comparedRow has a property of each bundle; an empty text stands for none.
type comparedRow struct {
	Name    string
	Cells   []string
	Differs bool
}

// Most is the number of bundles that a page compares.
func (comparison) Most() int { return mostCompared }

// Differing is the number of rows that differ.
func (c comparison) Differing() (n int) {
	for _, r := range c.Rows {
		if r.Differs {
			n++
		}
	}
	return n
}

// Here is the address of the page, with all rows or only those that differ.
func (c comparison) Here(only bool) string {
	q := url.Values{}
	for _, b := range c.Bundles {
		q.Add("uuid", b.UUID)
	}
	if only {
		q.Set("only", "1")
	}
	return "/compare?" + q.Encode()
}

// CL is the command that shows the same.
func (c comparison) CL() string {
	words := []string{"cl", "info"}
	if len(c.Bundles) == 2 {
		words = []string{"cl", "diff"}
	}
	for _, b := range c.Bundles {
		words = append(words, b.UUID)
	}
	return codalab.JoinWords(words)
}

// property is a row before it has cells.
type property struct {
	name string
	of   func(client.BundleInfo) string
	// measured is set for times, and for what runs ran on. They are shown, and make no difference, as in cl diff.
	measured bool
}

// compared returns the properties that any of these bundles has, those that differ first.
func compared(bundles []client.BundleInfo, properties []property) []comparedRow {
	var differ, same []comparedRow
	for _, p := range properties {
		r := comparedRow{Name: p.name}
		for _, b := range bundles {
			r.Cells = append(r.Cells, p.of(b))
		}
		there := slices.ContainsFunc(r.Cells, func(text string) bool { return text != "" })
		r.Differs = !p.measured && slices.ContainsFunc(r.Cells, func(text string) bool { return text != r.Cells[0] })
		switch {
		case r.Differs:
			differ = append(differ, r)
		case there:
			same = append(same, r)
		}
	}
	return append(differ, same...)
}

// properties are all that bundles are compared by. paths are names of values in files, and value returns one.
func properties(bundles []client.BundleInfo, paths []string, value func(uuid, path string) any) []property {
	list := []property{{name: "state", of: func(b client.BundleInfo) string { return string(b.State) }}}
	for _, path := range paths {
		list = append(list, property{name: path, of: func(b client.BundleInfo) string { return valueCell(value(b.UUID, path)).Text }})
	}
	var settings, inputs []string
	for _, b := range bundles {
		for _, s := range b.Metadata.Settings() {
			settings = append(settings, s.Name)
		}
		for _, d := range b.Dependencies {
			inputs = append(inputs, d.ChildPath)
		}
	}
	for _, name := range once(settings) {
		list = append(list, property{name: "setting " + name, of: func(b client.BundleInfo) string { return settingOf(b, name) }})
	}
	list = append(list, property{name: "command", of: func(b client.BundleInfo) string { return b.CommandText() }})
	for _, name := range once(inputs) {
		list = append(list, property{name: strings.TrimSpace("input " + name), of: func(b client.BundleInfo) string { return inputOf(b, name) }})
	}
	keys := append([]string{"docker_image"}, codalab.RequestKeys()...)
	for _, key := range append(keys, "exitcode", "failure_message") {
		list = append(list, metadataProperty(key))
	}
	list = append(list, property{name: "tags", of: func(b client.BundleInfo) string { return strings.Join(b.Metadata.TagsOutsideSweep(), " ") }})
	list = append(list, times()...)
	var ranOn []*codalab.Platform
	for _, b := range bundles {
		ranOn = append(ranOn, b.Platform)
	}
	for _, name := range codalab.PlatformFacts(ranOn...) {
		list = append(list, property{name: name, of: func(b client.BundleInfo) string { return b.Platform.Fact(name) }, measured: true})
	}
	return list
}

// times are the properties that make no difference.
func times() []property {
	list := []property{{name: "ran", measured: true, of: func(b client.BundleInfo) string { return row{BundleInfo: b}.Ran() }}}
	for _, key := range []string{"created", "started"} {
		list = append(list, property{name: key, measured: true, of: func(b client.BundleInfo) string { return utc(b.Metadata.Time(key)) }})
	}
	return list
}

func metadataProperty(key string) property {
	return property{name: key, of: func(b client.BundleInfo) string { return factText(b.Metadata, key) }}
}

// once drops repeated names.
func once(names []string) (list []string) {
	for _, name := range names {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

func settingOf(b client.BundleInfo, name string) string {
	for _, s := range b.Metadata.Settings() {
		if s.Name == name {
			return s.Value
		}
	}
	return ""
}

func inputOf(b client.BundleInfo, childPath string) string {
	for _, d := range b.Dependencies {
		if d.ChildPath == childPath {
			return strings.TrimSuffix(d.ParentName+"("+d.ParentUUID+")/"+d.ParentPath, "/")
		}
	}
	return ""
}

// compareBundles shows bundles side by side.
func (p *Pages) compareBundles(v *visit) error {
	q := v.URL.Query()
	if q.Has("next") { // a form for other actions, too: its address gets short
		rest.Go(v.ResponseWriter, v.Request, "/compare?"+url.Values{"uuid": q["uuid"]}.Encode())
		return nil
	}
	uuids := once(q["uuid"])
	c := comparison{Asked: len(uuids), Only: q.Get("only") == "1"}
	var bundles []client.BundleInfo
	for _, uuid := range uuids[:min(len(uuids), mostCompared)] {
		b, err := v.api.Bundle(v.Context(), uuid)
		if isUnreadable(err) || err == nil && b.Type == codalab.TypePrivate {
			c.Missing = append(c.Missing, uuid)
			continue
		}
		if err != nil {
			return fmt.Errorf("compare bundles: %w", err)
		}
		bundles = append(bundles, b)
		c.Bundles = append(c.Bundles, row{b, why(b.Bundle)})
	}
	if len(bundles) == 0 {
		if c.Asked > 0 {
			return rest.Refuse(http.StatusNotFound, "None of these bundles is found.")
		}
		return p.show(v, http.StatusOK, "compare", "Compare", c)
	}
	paths, have, err := p.comparedValues(v, bundles)
	if err != nil {
		return err
	}
	shown := paths[:min(len(paths), mostComparedValues)]
	c.ValuesLeft = len(paths) - len(shown)
	c.Rows = compared(bundles, properties(bundles, shown, have.of))
	return p.show(v, http.StatusOK, "compare", "Compare", c)
}

// isUnreadable reports whether a call failed because there is no such bundle, or not for this reader.
func isUnreadable(err error) bool {
	no, ok := errors.AsType[*codalab.Error](err)
	return ok && (no.Status == http.StatusBadRequest || no.Status == http.StatusForbidden || no.Status == http.StatusNotFound)
}

// comparedValues returns all names of values that bundles have, and the values of the first mostComparedValues. The names that
// the reader has chosen for tables come first; of running runs there are values with those names alone.
func (p *Pages) comparedValues(v *visit, bundles []client.BundleInfo) (paths []string, have values, err error) {
	chosen := columns(v.Request)
	_, known, err := readIndex(v, bundles, nil)
	if err != nil {
		return nil, nil, err
	}
	paths = chosen
	for _, k := range known {
		paths = append(paths, k.Path)
	}
	paths = once(paths)
	have, _, err = readIndex(v, bundles, paths[:min(len(paths), mostComparedValues)])
	if err != nil {
		return nil, nil, err
	}
	return paths, have, have.readRunning(v, bundles, chosen)
}
