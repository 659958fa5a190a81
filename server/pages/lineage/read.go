package lineage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const (
	// depth is the number of steps from the bundle in the middle, to either side.
	depth = 2
	// mostOfStep is the number of bundles that one step to one side adds.
	mostOfStep = 8
	// mostNamed is the number of bundles that a search for those left out names.
	mostNamed = 100
)

// Server finds bundles.
type Server interface {
	FindBundles(ctx context.Context, worksheet string, keywords, include, keys []string) ([]client.BundleInfo, json.RawMessage, error)
}

// Node is a bundle of a graph.
type Node struct {
	UUID string
	// Readable is false for a bundle that the reader may not read, or that is gone. It has no name, type and state.
	Readable bool
	Name     string
	Type     string
	State    codalab.State
	// dependencies are those of a readable one.
	dependencies []codalab.Dependency
}

// Edge leads from an input to the bundle that has it. From and To are the places of both in Nodes.
type Edge struct {
	From, To int
	// Inputs are the dependencies that the edge stands for.
	Inputs []codalab.Dependency
}

// More stands for bundles that the graph leaves out.
type More struct {
	// Step is the number of steps from the bundle in the middle, negative for inputs.
	Step, Count int
	// Query has keywords that find them, and maybe some that the graph has.
	Query string
}

// Graph is a bundle, which is the first node, with its ancestors and descendants.
type Graph struct {
	Nodes []Node
	Edges []Edge
	More  []More
	place map[string]int
}

// Read finds the graph of a bundle.
func Read(ctx context.Context, from Server, b codalab.Bundle) (Graph, error) {
	g := Graph{place: map[string]int{}}
	g.add(node(b))
	before, after := []int{0}, []int{0}
	var err error
	for step := 1; step <= depth && err == nil; step++ {
		if before, err = g.addInputs(ctx, from, before, -step); err == nil {
			after, err = g.addUses(ctx, from, after, step)
		}
	}
	if err != nil {
		return Graph{}, fmt.Errorf("find inputs and uses: %w", err)
	}
	g.connect()
	return g, nil
}

func node(b codalab.Bundle) Node {
	return Node{UUID: b.UUID, Readable: true, Name: b.Metadata.String("name"), Type: b.Type, State: b.State, dependencies: b.Dependencies}
}

func (g *Graph) add(n Node) int {
	g.place[n.UUID] = len(g.Nodes)
	g.Nodes = append(g.Nodes, n)
	return len(g.Nodes) - 1
}

// addInputs adds the inputs of some nodes, and returns those that are new.
func (g *Graph) addInputs(ctx context.Context, from Server, of []int, step int) ([]int, error) {
	var uuids []string
	for _, i := range of {
		for _, d := range g.Nodes[i].dependencies {
			if _, there := g.place[d.ParentUUID]; !there && !slices.Contains(uuids, d.ParentUUID) {
				uuids = append(uuids, d.ParentUUID)
			}
		}
	}
	if len(uuids) == 0 {
		return nil, nil
	}
	if left := uuids[min(len(uuids), mostOfStep):]; len(left) > 0 {
		g.More = append(g.More, More{step, len(left), "uuid=" + strings.Join(left[:min(len(left), mostNamed)], ",")})
		uuids = uuids[:mostOfStep]
	}
	found, _, err := find(ctx, from, "uuid="+strings.Join(uuids, ","), ".limit="+strconv.Itoa(mostOfStep))
	if err != nil {
		return nil, err
	}
	var added []int
	for _, uuid := range uuids {
		n := Node{UUID: uuid}
		if i := slices.IndexFunc(found, func(b client.BundleInfo) bool { return b.UUID == uuid }); i >= 0 {
			n = node(found[i].Bundle)
		}
		added = append(added, g.add(n))
	}
	return added, nil
}

// addUses adds the newest bundles that have some nodes as inputs, and returns those that are new.
func (g *Graph) addUses(ctx context.Context, from Server, of []int, step int) ([]int, error) {
	var uuids []string
	for _, i := range of {
		uuids = append(uuids, g.Nodes[i].UUID)
	}
	if len(uuids) == 0 {
		return nil, nil
	}
	query := "dependency=" + strings.Join(uuids, ",")
	limit := 2*mostOfStep + 1 // those of the step before, which may use each other, those of this one, and one that is left
	found, _, err := find(ctx, from, query, ".last", ".limit="+strconv.Itoa(limit))
	if err != nil {
		return nil, err
	}
	var added []int
	left := len(found) == limit
	for _, b := range found {
		if _, there := g.place[b.UUID]; there {
			continue
		}
		if len(added) == mostOfStep {
			left = true
			break
		}
		added = append(added, g.add(node(b.Bundle)))
	}
	if !left {
		return added, nil
	}
	_, number, err := find(ctx, from, query, ".count")
	if err != nil {
		return nil, err
	}
	all, err := strconv.Atoi(string(number))
	if err != nil {
		return nil, fmt.Errorf("count bundles: %w", err)
	}
	for _, n := range g.Nodes {
		if slices.ContainsFunc(n.dependencies, func(d codalab.Dependency) bool { return slices.Contains(uuids, d.ParentUUID) }) {
			all--
		}
	}
	if all > 0 {
		g.More = append(g.More, More{step, all, query})
	}
	return added, nil
}

func find(ctx context.Context, from Server, words ...string) ([]client.BundleInfo, json.RawMessage, error) {
	return from.FindBundles(ctx, "", words, nil, []string{"name"})
}

// connect adds the edges between the nodes.
func (g *Graph) connect() {
	for to, n := range g.Nodes {
		edges := map[int]int{}
		for _, d := range n.dependencies {
			from, there := g.place[d.ParentUUID]
			if !there || from == to {
				continue
			}
			e, known := edges[from]
			if !known {
				e = len(g.Edges)
				edges[from], g.Edges = e, append(g.Edges, Edge{From: from, To: to})
			}
			g.Edges[e].Inputs = append(g.Edges[e].Inputs, d)
		}
	}
}
