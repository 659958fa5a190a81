// Package grid expands the settings of a sweep into its members. It is pure: equal grids have equal members, in the same
// order, on every machine.
//
// A grid has factors: a list of values of one setting (NAME=VALUES), or a list of rows with values of several ones. Its
// members are the product of the factors, of which the last one changes fastest; with Zip, the first values of all
// factors, the second ones, and so on; with Sample, some of them by chance.
//
// VALUES are separated by commas. Each is a text, or a range:
//
//	1..4            1 2 3 4
//	01..10..3       01 04 07 10
//	0.1..0.5..0.2   0.1 0.3 0.5
//	0.1..0.5        numbers between, with Sample alone
//	log:1e-5..1e-1  the same, evenly among the exponents
package grid

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// MaxMembers is the most members that a grid may have.
const MaxMembers = 10_000

// Grid is a set of members as its user wrote it. A field that is left out is the zero value.
type Grid struct {
	// Each has factors of one setting: NAME=VALUES.
	Each []string `json:"each,omitempty"`
	// Tables are factors of several settings.
	Tables []Table `json:"tables,omitempty"`
	// Zip pairs the factors.
	Zip bool `json:"zip,omitempty"`
	// Sample takes so many members by chance, which Seed determines.
	Sample int    `json:"sample,omitempty"`
	Seed   uint64 `json:"seed,omitempty"`
}

// Table has rows of values of some settings.
type Table struct {
	Names []string   `json:"names"`
	Rows  [][]string `json:"rows"`
}

// Member has the settings of one member, in the order of the grid's factors.
type Member []codalab.Setting

// Key is equal for members with the same settings, in whatever order.
func (m Member) Key() string {
	tags := make([]string, len(m))
	for i, s := range m {
		tags[i] = s.Tag()
	}
	slices.Sort(tags)
	return strings.Join(tags, " ")
}

// String returns the settings for people.
func (m Member) String() string {
	words := make([]string, len(m))
	for i, s := range m {
		words[i] = s.Name + "=" + s.Value
	}
	return strings.Join(words, " ")
}

// SettingNames returns the names of the settings that each member has.
func (g Grid) SettingNames() ([]string, error) {
	factors, err := g.factors()
	var names []string
	for _, f := range factors {
		names = append(names, f.names()...)
	}
	return names, err
}

// Members returns the members, which all differ. It refuses a grid of too many before it makes any.
func (g Grid) Members() ([]Member, error) {
	factors, err := g.factors()
	if err != nil {
		return nil, err
	}
	if g.Zip {
		zipped, err := zip(factors)
		if err != nil {
			return nil, err
		}
		factors = []factor{zipped}
	}
	if g.Sample != 0 {
		return sample(factors, g.Sample, g.Seed)
	}
	for _, f := range factors {
		if f.count() == 0 {
			return nil, fmt.Errorf("%s is a range without end: --sample N takes N numbers of it, and a step makes it a list, as in 0.1..0.5..0.1", f.names()[0])
		}
	}
	n, whole := product(factors)
	if !whole || n > MaxMembers {
		return nil, fmt.Errorf("the grid has %s members, and a sweep may have %d; --sample N takes N of them", spellCount(n, whole), MaxMembers)
	}
	members := make([]Member, n)
	for i := range members {
		members[i] = member(factors, uint64(i))
	}
	return members, nil
}

// factors reads the factors.
func (g Grid) factors() ([]factor, error) {
	var factors []factor
	for _, text := range g.Each {
		a, err := readAxis(text)
		if err != nil {
			return nil, err
		}
		factors = append(factors, a)
	}
	for _, t := range g.Tables {
		if err := t.check(); err != nil {
			return nil, err
		}
		factors = append(factors, t)
	}
	if len(factors) == 0 {
		return nil, fmt.Errorf("a sweep needs settings: --each NAME=VALUES, or --each-line FILE")
	}
	seen := map[string]bool{}
	for _, f := range factors {
		for _, name := range f.names() {
			if err := codalab.CheckSettingName(name); err != nil {
				return nil, err
			}
			if seen[name] {
				return nil, fmt.Errorf("the setting %s is given twice; its values go into one list: %s=1,2,3", name, name)
			}
			seen[name] = true
		}
	}
	return factors, nil
}

// factor is a list of rows, which may be too long to be made.
type factor interface {
	names() []string
	// count is the number of rows; 0 for a range of which any number may be taken.
	count() uint64
	// at returns row i; of a range without end, i determines the number.
	at(i uint64) []string
}

// product returns the number of members; false if it is too large for a number.
func product(factors []factor) (n uint64, whole bool) {
	n = 1
	for _, f := range factors {
		count := f.count()
		if count > 0 && n > (1<<62)/count {
			return 1 << 62, false
		}
		n *= count
	}
	return n, true
}

func spellCount(n uint64, whole bool) string {
	if !whole || n > 1e18 {
		return "more than 10^18"
	}
	return strconv.FormatUint(n, 10)
}

// member returns member i of the product of factors.
func member(factors []factor, i uint64) Member {
	parts := make([]Member, len(factors))
	for at := len(factors) - 1; at >= 0; at-- {
		n := factors[at].count()
		parts[at] = row(factors[at], i%n)
		i /= n
	}
	return slices.Concat(parts...)
}

// row returns row i of a factor.
func row(f factor, i uint64) Member {
	names, values := f.names(), f.at(i)
	m := make(Member, len(names))
	for at, name := range names {
		m[at] = codalab.Setting{Name: name, Value: values[at]}
	}
	return m
}

func (t Table) names() []string      { return t.Names }
func (t Table) count() uint64        { return uint64(len(t.Rows)) }
func (t Table) at(i uint64) []string { return t.Rows[i] }

func (t Table) check() error {
	if len(t.Rows) == 0 {
		return fmt.Errorf("--each-line found no lines")
	}
	first := map[string]int{}
	for i, values := range t.Rows {
		if len(values) != len(t.Names) {
			return fmt.Errorf("line %d has %d values, and there are %d settings: %s", i+1, len(values), len(t.Names), strings.Join(t.Names, ", "))
		}
		for _, value := range values {
			if err := checkValue(value); err != nil {
				return fmt.Errorf("line %d: %w", i+1, err)
			}
		}
		key := strings.Join(values, "\x00")
		if other, ok := first[key]; ok {
			return fmt.Errorf("lines %d and %d are the same; a member of a sweep differs from all others", other+1, i+1)
		}
		first[key] = i
	}
	return nil
}

// zipped pairs factors of the same length.
type zipped []factor

func zip(factors []factor) (factor, error) {
	for _, f := range factors {
		if a, b := factors[0], f; a.count() == 0 || a.count() != b.count() {
			return nil, fmt.Errorf("--zip pairs lists of the same length, and %s has %s values, %s has %s",
				strings.Join(a.names(), ","), spellLength(a), strings.Join(b.names(), ","), spellLength(b))
		}
	}
	return zipped(factors), nil
}

func spellLength(f factor) string {
	if f.count() == 0 {
		return "any number of"
	}
	return strconv.FormatUint(f.count(), 10)
}

func (z zipped) names() (names []string) {
	for _, f := range z {
		names = append(names, f.names()...)
	}
	return names
}

func (z zipped) count() uint64 { return z[0].count() }

func (z zipped) at(i uint64) (values []string) {
	for _, f := range z {
		values = append(values, f.at(i)...)
	}
	return values
}

// Project returns the values that members have for some of their settings, each combination once.
func Project(members []Member, names []string) Table {
	t := Table{Names: names}
	seen := map[string]bool{}
	for _, m := range members {
		var values []string
		for _, name := range names {
			for _, s := range m {
				if s.Name == name {
					values = append(values, s.Value)
				}
			}
		}
		if key := strings.Join(values, "\x00"); !seen[key] {
			seen[key] = true
			t.Rows = append(t.Rows, values)
		}
	}
	return t
}
