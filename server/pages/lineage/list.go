package lineage

// mostPaths is the number of paths of an input that the list shows.
const mostPaths = 10

// Item is a bundle in a list that says the same as the picture.
type Item struct {
	Node
	// Text is the name, cut.
	Text string
	// Paths are those under which the bundle before has this one, or this one the bundle before. LeftPaths is the number of
	// others.
	Paths     []string
	LeftPaths int
	// Again is set if the bundle stands in the list already, with its Items, which are left out here.
	Again bool
	Items []Item
}

// Inputs are the inputs of the bundle in the middle, each with its own.
func (g Graph) Inputs() []Item {
	return g.items(0, map[int]bool{}, func(e Edge) (int, int) { return e.To, e.From })
}

// Uses are the bundles that have the one in the middle as an input, each with those that have it.
func (g Graph) Uses() []Item {
	return g.items(0, map[int]bool{}, func(e Edge) (int, int) { return e.From, e.To })
}

// items are the neighbours of a node, as ends tells an edge's near and its far end. The list has each node's own once, so that
// it ends, and is not longer than there are edges.
func (g Graph) items(of int, seen map[int]bool, ends func(Edge) (near, far int)) []Item {
	seen[of] = true
	var list []Item
	for _, e := range g.Edges {
		near, far := ends(e)
		if near != of {
			continue
		}
		item := Item{Node: g.Nodes[far], Text: cut(g.Nodes[far].Label()), Again: seen[far], LeftPaths: max(0, len(e.Inputs)-mostPaths)}
		for _, in := range e.Inputs[:min(len(e.Inputs), mostPaths)] {
			item.Paths = append(item.Paths, cut(pathOf(in)))
		}
		if !item.Again {
			item.Items = g.items(far, seen, ends)
		}
		list = append(list, item)
	}
	return list
}
