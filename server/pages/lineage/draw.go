package lineage

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// Sizes in the picture's units, which are pixels.
const (
	boxWidth   = 176
	boxHeight  = 46 // without inputs
	portHeight = 17
	moreHeight = 28
	knotHeight = 14
	columnGap  = 64
	rowGap     = 16
	margin     = 4
)

const (
	// namedWithin is the width of a text in a box, in columns of a terminal.
	namedWithin = 19
	// mostOfTitle is the number of characters of a text for those who point at something.
	mostOfTitle = 200
)

// Picture is a graph with the places of everything.
type Picture struct {
	Width, Height int
	// Boxes are the bundles, and a box for the bundles that are left out: from the left, and in a column from above.
	Boxes []Box
	// Lines are paths of SVG, one for each edge.
	Lines []string
}

// Box is a bundle, or stands for those that are left out.
type Box struct {
	Node
	X, Y, Height int
	// Shown is the name as far as there is room, and Title describes the box.
	Shown, Title string
	// Here is set for the bundle in the middle.
	Here bool
	// Ports are the inputs that the picture has.
	Ports []Port
	// Address leads to the bundle, or to what is left out; empty for the bundle in the middle and for one that cannot be read.
	Address string
	// Left is the number of bundles that are left out; 0 for a bundle.
	Left int
}

// Width is the width of all boxes.
func (Box) Width() int { return boxWidth }

// Port is an input of a box, at which a line ends. Y is its middle.
type Port struct {
	Shown string
	Y     int
}

// Draw arranges a graph: each bundle is on the right of its inputs, and nothing covers anything else.
func Draw(g Graph) Picture {
	links := make([]link, len(g.Edges))
	for i, e := range g.Edges {
		links[i] = link{e.From, e.To}
	}
	aside := map[int]int{}
	for i, m := range g.More {
		aside[len(g.Nodes)+i] = m.Step
	}
	l := newLayers(len(g.Nodes)+len(g.More), links, aside)
	d := drawing{graph: g, layers: l, ports: map[int][]int{}, top: map[int]int{}, column: map[int]int{}}
	d.choosePorts()
	d.place()
	return d.picture()
}

// drawing is a graph while it is drawn. Items are its nodes, what it leaves out, and knots, in this order.
type drawing struct {
	graph  Graph
	layers layers
	// ports are the edges that end at each node, from above.
	ports map[int][]int
	// top and column are the places of items.
	top, column map[int]int
	height      int
}

// choosePorts orders the edges that end at a node as the items are from which they come.
func (d *drawing) choosePorts() {
	row := map[int]int{}
	for _, items := range d.layers.items {
		for i, item := range items {
			row[item] = i
		}
	}
	for i := range d.graph.Edges {
		if way := d.layers.edges[i]; way != nil {
			to := way[len(way)-1]
			d.ports[to] = append(d.ports[to], i)
		}
	}
	before := func(edge int) int { way := d.layers.edges[edge]; return row[way[len(way)-2]] }
	for _, edges := range d.ports {
		slices.SortStableFunc(edges, func(a, b int) int { return cmp.Compare(before(a), before(b)) })
	}
}

// heightOf is the height of an item.
func (d *drawing) heightOf(item int) int {
	switch nodes := len(d.graph.Nodes); {
	case item < nodes && len(d.ports[item]) > 0:
		return boxHeight + len(d.ports[item])*portHeight + 4
	case item < nodes:
		return boxHeight
	case item < nodes+len(d.graph.More):
		return moreHeight
	}
	return knotHeight
}

// place puts the layers in a row, with their middles in one line.
func (d *drawing) place() {
	heights := make([]int, len(d.layers.items))
	for column, items := range d.layers.items {
		for _, item := range items {
			heights[column] += d.heightOf(item) + rowGap
		}
		heights[column] -= rowGap
		d.height = max(d.height, heights[column])
	}
	for column, items := range d.layers.items {
		y := margin + (d.height-heights[column])/2
		for _, item := range items {
			d.top[item], d.column[item] = y, column
			y += d.heightOf(item) + rowGap
		}
	}
}

func (d *drawing) x(item int) int { return margin + d.column[item]*(boxWidth+columnGap) }

func (d *drawing) picture() Picture {
	p := Picture{
		Width: 2*margin + len(d.layers.items)*(boxWidth+columnGap) - columnGap, Height: d.height + 2*margin,
	}
	for _, items := range d.layers.items {
		for _, item := range items {
			if more := item - len(d.graph.Nodes); more < len(d.graph.More) {
				p.Boxes = append(p.Boxes, d.box(item))
			}
		}
	}
	for i := range d.graph.Edges {
		if way := d.layers.edges[i]; way != nil {
			p.Lines = append(p.Lines, d.line(i, way))
		}
	}
	return p
}

// box draws a node, or what is left out.
func (d *drawing) box(item int) Box {
	b := Box{X: d.x(item), Y: d.top[item], Height: d.heightOf(item)}
	if item >= len(d.graph.Nodes) {
		more := d.graph.More[item-len(d.graph.Nodes)]
		b.Left, b.Address = more.Count, more.Address()
		b.Shown = "and " + strconv.Itoa(more.Count) + " more"
		b.Title = b.Shown + " " + more.What()
		return b
	}
	b.Node = d.graph.Nodes[item]
	b.Here = item == 0
	b.Address = b.Node.Address()
	if b.Here {
		b.Address = ""
	}
	b.Shown, b.Title = fit(b.Label()), cut(b.Label())
	if b.Readable {
		b.Title += ", " + b.Type + ", " + string(b.State)
	}
	for i, edge := range d.ports[item] {
		b.Ports = append(b.Ports, Port{fit(d.graph.Edges[edge].Paths()), d.portY(item, i)})
	}
	return b
}

func (d *drawing) portY(item, port int) int {
	return d.top[item] + boxHeight + port*portHeight + portHeight/2
}

// line draws an edge: straight past the items of each layer, and curved between layers.
func (d *drawing) line(edge int, way []int) string {
	var path strings.Builder
	from, to := way[0], way[len(way)-1]
	x, y := d.x(from)+boxWidth, d.top[from]+boxHeight/2
	fmt.Fprintf(&path, "M%d %d", x, y)
	for _, item := range way[1:] {
		nextX, nextY := d.x(item), d.top[item]+knotHeight/2
		if item == to {
			nextY = d.portY(item, slices.Index(d.ports[item], edge))
		}
		fmt.Fprintf(&path, "C%d %d %d %d %d %d", x+columnGap/2, y, nextX-columnGap/2, nextY, nextX, nextY)
		if item != to {
			fmt.Fprintf(&path, "h%d", boxWidth)
		}
		x, y = nextX+boxWidth, nextY
	}
	return path.String()
}

// Label is the name for people.
func (n Node) Label() string {
	if !n.Readable {
		return "not readable"
	}
	return cmp.Or(termtext.OneLine(n.Name), n.UUID)
}

// Address is that of the bundle's page; empty for one that cannot be read.
func (n Node) Address() string {
	if !n.Readable {
		return ""
	}
	return "/bundles/" + url.PathEscape(n.UUID)
}

// Paths are those under which a bundle has an input.
func (e Edge) Paths() string {
	var paths []string
	for _, in := range e.Inputs {
		paths = append(paths, pathOf(in))
	}
	return strings.Join(paths, ", ")
}

// pathOf is the path of an input in the bundle that has it; a bundle may be nothing but its input.
func pathOf(in codalab.Dependency) string {
	return cmp.Or(termtext.OneLine(in.ChildPath), "its contents")
}

// What describes the bundles.
func (m More) What() string {
	switch {
	case m.Step == -1:
		return "inputs"
	case m.Step < 0:
		return "inputs of inputs"
	case m.Step == 1:
		return "bundles that use it"
	}
	return "bundles that use those"
}

// Address is that of a list of them.
func (m More) Address() string { return "/runs?" + url.Values{"q": {m.Query}}.Encode() }

// fit cuts a text for a box.
func fit(text string) string { return ansi.Truncate(text, namedWithin, "…") }

// cut cuts a text for a title.
func cut(text string) string {
	if runes := []rune(text); len(runes) > mostOfTitle {
		return string(runes[:mostOfTitle]) + "…"
	}
	return text
}
