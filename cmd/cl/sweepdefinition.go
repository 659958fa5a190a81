package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/cl-slurm/cl-slurm/cmd/internal/grid"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// sweepDefinition is what all runs of a sweep have in common, and their settings. Texts have places for settings, {NAME}.
// It stands on the sweep's worksheet, so that any machine can go on with the sweep.
type sweepDefinition struct {
	Command      string               `json:"command"`
	Metadata     codalab.Metadata     `json:"metadata"`
	Dependencies []codalab.Dependency `json:"dependencies,omitempty"`
	// Grids have the members. A member of several is one member.
	Grids []grid.Grid `json:"grids"`
}

// newMembers returns the members of a further grid, with their settings in the order of the first one.
func (d sweepDefinition) newMembers(g grid.Grid) ([]grid.Member, error) {
	like, err := d.names()
	if err != nil {
		return nil, err
	}
	members, err := g.Members()
	if err != nil {
		return nil, refusef("%s", codalab.Sentence(err.Error()))
	}
	for i, m := range members {
		members[i] = inOrder(m, like)
	}
	return members, nil
}

// members returns the members of all grids, each once. Their settings are in the order of the first grid.
func (d sweepDefinition) members() ([]grid.Member, error) {
	seen := map[string]bool{}
	var all []grid.Member
	for _, g := range d.Grids {
		members, err := d.newMembers(g)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			if key := m.Key(); !seen[key] {
				seen[key] = true
				all = append(all, m)
			}
		}
	}
	if len(all) > grid.MaxMembers {
		return nil, refusef("The sweep would have %d members, and may have %d.", len(all), grid.MaxMembers)
	}
	return all, nil
}

// has reports whether a grid is one of the definition's.
func (d sweepDefinition) has(g grid.Grid) bool {
	return slices.ContainsFunc(d.Grids, func(other grid.Grid) bool { return reflect.DeepEqual(other, g) })
}

// inOrder returns a member with its settings in the order of names.
func inOrder(m grid.Member, names []string) grid.Member {
	values := map[string]string{}
	for _, s := range m {
		values[s.Name] = s.Value
	}
	ordered := make(grid.Member, 0, len(m))
	for _, name := range names {
		ordered = append(ordered, codalab.Setting{Name: name, Value: values[name]})
	}
	return ordered
}

// names returns the names of the settings.
func (d sweepDefinition) names() ([]string, error) {
	names, err := d.Grids[0].SettingNames()
	if err != nil {
		return nil, refusef("%s", codalab.Sentence(err.Error()))
	}
	return names, nil
}

// check refuses a definition of which a setting is used nowhere, or is misspelt.
func (d sweepDefinition) check() error {
	names, err := d.names()
	if err != nil {
		return err
	}
	texts := []string{d.Command}
	for _, value := range d.Metadata {
		if text, ok := value.(string); ok {
			texts = append(texts, text)
		}
	}
	for _, key := range []string{"tags", "exclude_patterns"} {
		texts = append(texts, d.Metadata.Strings(key)...)
	}
	if err := grid.CheckUse(names, texts...); err != nil {
		return refusef("%s", codalab.Sentence(err.Error()))
	}
	return nil
}

// maxMemberName bounds the name that a member gets from its settings, in bytes.
const maxMemberName = 100

// run returns the run of a member, without its uuid and its worksheet, or refuses it.
func (d sweepDefinition) run(m grid.Member) (client.NewBundle, error) {
	b := client.NewBundle{
		Type: codalab.TypeRun, Command: grid.Fill(d.Command, m), Metadata: codalab.Metadata{}, Dependencies: d.Dependencies, CheckRequests: true,
	}
	for _, k := range codalab.MetadataKeys(codalab.TypeRun) {
		value, ok := d.Metadata[k.Key]
		if !ok {
			continue
		}
		filled, err := fill(k, value, m)
		if err != nil {
			return b, refusef("%s: %s: want %v", m, k.Key, err)
		}
		b.Metadata[k.Key] = filled
	}
	if secrets := d.Metadata.Strings(codalab.SecretsKey); len(secrets) > 0 {
		b.Metadata[codalab.SecretsKey] = secrets
	}
	if base := d.Metadata.String("name"); grid.Fill(base, m) == base {
		b.Metadata["name"] = grid.NameOf(base, m, maxMemberName)
	} else {
		b.Metadata["name"] = grid.NameOf(b.Metadata.String("name"), nil, maxMemberName)
	}
	if err := codalab.CheckCommand(b.Command); err != nil {
		return b, refusef("%s: %v", m, err)
	}
	if err := checkName(b.Metadata.String("name")); err != nil {
		return b, err
	}
	if err := codalab.CheckMetadata(codalab.TypeRun, b.Metadata, true); err != nil {
		return b, refusef("%v", err)
	}
	return b, checkResumes(b.Metadata)
}

// fill fills the settings of a member into a value of metadata.
func fill(k codalab.MetadataKey, value any, m grid.Member) (any, error) {
	switch v := value.(type) {
	case string:
		text := grid.Fill(v, m)
		switch {
		case text == v:
			return v, nil
		case k.Type == codalab.TypeInt:
			n := &wholeNumber{}
			err := n.Set(text)
			return n.value, err
		case k.Type == codalab.TypeSize:
			return spellSize(text)
		case k.Type == codalab.TypeDuration:
			return spellDuration(text)
		}
		return text, nil
	case []string, []any:
		list := []string{}
		for _, text := range (codalab.Metadata{k.Key: v}).Strings(k.Key) {
			list = append(list, grid.Fill(text, m))
		}
		return list, nil
	}
	return value, nil
}

// A definition stands on the worksheet in comments, which pages do not show: cl-sweep REVISION PIECE/PIECES JSON. A change
// adds a complete definition with a higher revision before it removes the old one.
const (
	definitionWord = "cl-sweep"
	// maxPiece bounds a piece. The text of an item has 65,535 bytes at most on CodaLab's own server.
	maxPiece = 60_000
)

// encode returns the definition as JSON in ASCII, because the texts of CodaLab's own server may have no characters
// beyond three bytes of UTF-8.
func (d sweepDefinition) encode() (string, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("encode sweep: %w", err)
	}
	var out strings.Builder
	for _, c := range string(data) {
		switch {
		case c == '\'' || c > 0xffff || c > '~':
			for _, unit := range utf16.Encode([]rune{c}) {
				fmt.Fprintf(&out, `\u%04x`, unit)
			}
		default:
			out.WriteRune(c)
		}
	}
	return out.String(), nil
}

// items returns the items of a worksheet that have the definition.
func (d sweepDefinition) items(revision int) ([]client.Item, error) {
	text, err := d.encode()
	if err != nil {
		return nil, err
	}
	var pieces []string
	for len(text) > maxPiece {
		cut := maxPiece
		for cut > 1 && text[cut-1] == ' ' { // people's editors remove it
			cut--
		}
		pieces, text = append(pieces, text[:cut]), text[cut:]
	}
	pieces = append(pieces, text)
	var items []client.Item
	for i, piece := range pieces {
		comment := fmt.Sprintf(" %s %d %d/%d %s", definitionWord, revision, i+1, len(pieces), piece)
		items = append(items, client.Item{WorksheetItem: codalab.WorksheetItem{
			Type: codalab.ItemDirective, Value: codalab.JoinWords([]string{codalab.CommentWord, comment}),
		}})
	}
	return items, nil
}

// storedDefinition is a definition on a worksheet.
type storedDefinition struct {
	sweepDefinition
	// revision is 0 if there is no definition.
	revision int
	// items are the ids of its items, and stale those of other definitions.
	items, stale []string
}

// piece is an item that has a part of a definition.
type piece struct {
	id, text                string
	revision, number, among int
}

// readPiece reads an item; false if it is none of a definition.
func readPiece(item client.Item) (p piece, ok bool) {
	words := strings.SplitN(codalab.DirectiveLine(item.Value), " ", 5)
	if item.Type != codalab.ItemDirective || len(words) < 5 || words[0] != codalab.CommentMark || words[1] != definitionWord {
		return p, false
	}
	number, among, _ := strings.Cut(words[3], "/")
	p = piece{id: item.ID, text: words[4]}
	p.revision, _ = strconv.Atoi(words[2]) // a definition without numbers is incomplete
	p.number, _ = strconv.Atoi(number)
	p.among, _ = strconv.Atoi(among)
	return p, true
}

// readDefinition returns the newest complete definition on a worksheet.
func readDefinition(items []client.Item) (newest storedDefinition) {
	revisions := map[int][]piece{}
	for _, item := range items {
		if p, ok := readPiece(item); ok {
			revisions[p.revision] = append(revisions[p.revision], p)
		}
	}
	for _, revision := range slices.Backward(slices.Sorted(maps.Keys(revisions))) {
		pieces := revisions[revision]
		slices.SortFunc(pieces, func(a, b piece) int { return a.number - b.number })
		var text strings.Builder
		var ids []string
		for _, p := range pieces {
			text.WriteString(p.text)
			ids = append(ids, p.id)
		}
		d := storedDefinition{revision: revision, items: ids}
		whole := revision > 0 && pieces[0].among == len(pieces) && json.Unmarshal([]byte(text.String()), &d.sweepDefinition) == nil && len(d.Grids) > 0
		if whole && newest.revision == 0 {
			newest.sweepDefinition, newest.revision, newest.items = d.sweepDefinition, revision, ids
		} else {
			newest.stale = append(newest.stale, ids...)
		}
	}
	return newest
}
