package bridge

import "slices"

// places gives the position of each bundle in a list without duplicates. Most lists are short,
// and searched one by one.
type places struct {
	bundles []string
	index   map[string]int // of bundles; nil for a short list
}

// few is the length of a list that is searched one by one.
const few = 8

// at is a bundle's position; -1 if it is not in the list.
func (p *places) at(bundle string) int {
	if p.index == nil {
		return slices.Index(p.bundles, bundle)
	}
	if i, ok := p.index[bundle]; ok {
		return i
	}
	return -1
}

// add appends a bundle to the list.
func (p *places) add(bundle string) {
	p.bundles = append(p.bundles, bundle)
	switch {
	case p.index != nil:
		p.index[bundle] = len(p.bundles) - 1
	case len(p.bundles) > few:
		p.index = make(map[string]int, 2*few)
		for i, b := range p.bundles {
			p.index[b] = i
		}
	}
}
