package lineage

import (
	"cmp"
	"math"
	"slices"
)

// layers tells the layer of each of some items, and their order in it. An edge leads from a layer to one on its right. One
// that leads farther than to the next has a knot, which is an item, too, in each layer between.
type layers struct {
	// items has the items of each layer from above, the leftmost layer first.
	items [][]int
	// edges are the ways of the edges that could be placed, by their place in the list: the items from the first to the last.
	edges map[int][]int
	// left and right are the neighbours of each item in the layers next to its own.
	left, right map[int][]int
}

// link leads from an item to another one.
type link struct{ from, to int }

// newLayers places items: 0 in the middle, those from which links lead to it on its left, and those to which links lead from it
// on its right, each as far as the longest way. An item without such a way comes into the layer that aside has, counted
// from the middle. Links that close a circle are left out. Of n items, links have the numbers.
func newLayers(n int, links []link, aside map[int]int) layers {
	links, numbers := withoutCircles(links)
	rank := ranks(n, links, aside)
	lowest := slices.Min(rank)
	l := layers{items: make([][]int, slices.Max(rank)-lowest+1), edges: map[int][]int{}, left: map[int][]int{}, right: map[int][]int{}}
	put := func(item, rank int) { l.items[rank-lowest] = append(l.items[rank-lowest], item) }
	for i, r := range rank {
		put(i, r)
	}
	for i, e := range links {
		if rank[e.from] >= rank[e.to] {
			continue
		}
		way := []int{e.from}
		for r := rank[e.from] + 1; r < rank[e.to]; r++ {
			put(n, r)
			way = append(way, n)
			n++
		}
		way = append(way, e.to)
		for j := range way[1:] {
			l.right[way[j]] = append(l.right[way[j]], way[j+1])
			l.left[way[j+1]] = append(l.left[way[j+1]], way[j])
		}
		l.edges[numbers[i]] = way
	}
	l.order(-lowest)
	return l
}

// withoutCircles returns the links without those that close a circle with links before them, and their numbers.
func withoutCircles(links []link) (kept []link, numbers []int) {
	next := map[int][]int{}
	reaches := func(from, to int) bool {
		seen, stack := map[int]bool{from: true}, []int{from}
		for len(stack) > 0 {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if at == to {
				return true
			}
			for _, n := range next[at] {
				if !seen[n] {
					seen[n] = true
					stack = append(stack, n)
				}
			}
		}
		return false
	}
	for i, e := range links {
		if !reaches(e.to, e.from) {
			next[e.from] = append(next[e.from], e.to)
			kept, numbers = append(kept, e), append(numbers, i)
		}
	}
	return kept, numbers
}

// ranks are the layers of items, counted from the middle: the lengths of the longest ways to it and from it. The links have no
// circles, so that no way is longer than there are items.
func ranks(n int, links []link, aside map[int]int) []int {
	rank, known := make([]int, n), make([]bool, n)
	known[0] = true
	for range n {
		for _, e := range links {
			if known[e.to] && rank[e.to] <= 0 && e.from != 0 && (!known[e.from] || rank[e.from] >= rank[e.to]) {
				rank[e.from], known[e.from] = rank[e.to]-1, true
			}
			if known[e.from] && rank[e.from] >= 0 && e.to != 0 && (!known[e.to] || rank[e.to] <= rank[e.from]) {
				rank[e.to], known[e.to] = rank[e.from]+1, true
			}
		}
	}
	for i, r := range aside {
		if !known[i] {
			rank[i] = r
		}
	}
	return rank
}

// rounds is the number of times that the order of all layers is mended.
const rounds = 4

// order puts the items of each layer into the order of their neighbours, so that few edges cross (the barycentre method of
// Sugiyama, Tagawa and Toda, 1981): outwards from the middle, and back.
func (l layers) order(middle int) {
	for range rounds {
		for at := middle - 1; at >= 0; at-- {
			l.orderBy(at, at+1, l.right)
		}
		for at := middle + 1; at < len(l.items); at++ {
			l.orderBy(at, at-1, l.left)
		}
		for at := 1; at < middle; at++ {
			l.orderBy(at, at-1, l.left)
		}
		for at := len(l.items) - 2; at > middle; at-- {
			l.orderBy(at, at+1, l.right)
		}
	}
}

// orderBy orders a layer by the mean places of its items' neighbours in another one. An item without any there keeps its place,
// and one without any at all is the last.
func (l layers) orderBy(layer, other int, neighbours map[int][]int) {
	place := map[int]float64{}
	for i, item := range l.items[other] {
		place[item] = float64(i) - float64(len(l.items[other])-1)/2
	}
	mean := map[int]float64{}
	for i, item := range l.items[layer] {
		mean[item] = float64(i) - float64(len(l.items[layer])-1)/2
		if len(l.left[item])+len(l.right[item]) == 0 {
			mean[item] = math.Inf(1)
		}
		if list := neighbours[item]; len(list) > 0 {
			sum := 0.0
			for _, n := range list {
				sum += place[n]
			}
			mean[item] = sum / float64(len(list))
		}
	}
	slices.SortStableFunc(l.items[layer], func(a, b int) int { return cmp.Compare(mean[a], mean[b]) })
}
