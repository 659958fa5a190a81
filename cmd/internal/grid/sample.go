package grid

import (
	"fmt"
	"math/rand/v2"
)

// sample takes n different members by chance. A larger n only appends members.
func sample(factors []factor, n int, seed uint64) ([]Member, error) {
	switch {
	case n < 0:
		return nil, fmt.Errorf("--sample %d takes no members", n)
	case n > MaxMembers:
		return nil, fmt.Errorf("--sample %d: a sweep may have %d members", n, MaxMembers)
	}
	random := rand.NewPCG(seed, 0x5eed)
	endless := false
	for _, f := range factors {
		endless = endless || f.count() == 0
	}
	if total, whole := product(factors); whole && !endless {
		return draw(factors, total, n, random)
	}
	return drawDistinct(factors, n, random)
}

// draw takes n of all members, none twice: the first steps of a shuffle, of which it keeps only the exchanged places.
func draw(factors []factor, total uint64, n int, random *rand.PCG) ([]Member, error) {
	if uint64(n) > total { //nolint:gosec // n is not negative
		return nil, fmt.Errorf("--sample %d takes more than the %d members that there are", n, total)
	}
	moved := map[uint64]uint64{}
	place := func(i uint64) uint64 {
		if at, ok := moved[i]; ok {
			return at
		}
		return i
	}
	members := make([]Member, n)
	for i := range members {
		here := uint64(i)
		there := here + random.Uint64()%(total-here)
		chosen := place(there)
		moved[there] = place(here)
		members[i] = member(factors, chosen)
	}
	return members, nil
}

// drawDistinct takes n members of factors without end, or of too many members to be counted.
func drawDistinct(factors []factor, n int, random *rand.PCG) ([]Member, error) {
	seen := map[string]bool{}
	members := make([]Member, 0, n)
	for tries := 0; len(members) < n; tries++ {
		if tries > 100*n+1000 {
			return nil, fmt.Errorf("--sample %d: the ranges have only about %d different members; values have four digits", n, len(members))
		}
		var m Member
		for _, f := range factors {
			i := random.Uint64()
			if count := f.count(); count > 0 {
				i %= count
			}
			m = append(m, row(f, i)...)
		}
		if key := m.Key(); !seen[key] {
			seen[key] = true
			members = append(members, m)
		}
	}
	return members, nil
}
