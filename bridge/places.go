package bridge

import "slices"

// places tell where each bundle is in a list that has it once. Most lists are
// short, and are looked through.
type places struct {
	bundles []string
	index   map[string]int // of bundles, where they are many
}

// few is how many bundles are looked through one by one.
const few = 8

// at is where a bundle is in the list, -1 for nowhere.
func (p *places) at(bundle string) int {
	if p.index == nil {
		return slices.Index(p.bundles, bundle)
	}
	if i, ok := p.index[bundle]; ok {
		return i
	}
	return -1
}

// add notes that a bundle was appended to the list.
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
