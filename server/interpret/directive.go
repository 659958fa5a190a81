package interpret

import (
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// addDirective executes a directive.
func (b *builder) addDirective(it item) error {
	if it.badTokens != nil {
		return usage("%s", it.badTokens)
	}
	arguments := it.tokens[min(1, len(it.tokens)):]
	switch command := it.command(); command {
	case "":
	case "schema":
		if len(arguments) == 0 {
			return usage("`schema` missing name")
		}
		b.currentName, b.current = arguments[0], &schema{}
		b.currentIDs = append(b.currentIDs, it.ID)
		b.schemas[b.currentName] = b.current
		b.show()
		b.places[len(b.places)-1][0] += len(b.currentIDs)
		return nil
	case "add", "addschema":
		if err := b.addColumns(it, command, arguments); err != nil {
			return err
		}
	case "display":
		b.display = arguments
	case "search", "wsearch":
		b.append(&placeholderBlock{
			head: head{Mode: "placeholder_block"}, Directive: codalab.JoinWords(it.tokens), SortKeys: []*int64{it.SortKey},
		})
		b.show()
		return nil
	default:
		return usage("unknown directive `%s`", command)
	}
	b.hide()
	return nil
}

// addColumns adds to the current schema.
func (b *builder) addColumns(it item, command string, arguments []string) error {
	if b.current == nil {
		return usage("`%s` must be preceded by `schema` directive", command)
	}
	added := []*column{}
	if command == "add" {
		b.currentIDs = append(b.currentIDs, it.ID)
		name := b.currentName
		c, err := newColumn(arguments, &name)
		if err != nil {
			return err
		}
		added = append(added, c)
	} else {
		if len(arguments) == 0 {
			return usage("`addschema` missing name")
		}
		other, ok := b.schemas[arguments[0]]
		if !ok {
			return usage("unknown schema `%s`", arguments[0])
		}
		b.currentIDs = append(b.currentIDs, it.ID)
		added = other.columns
	}
	if len(b.current.columns)+len(added) > maxColumns {
		return tooManyColumns()
	}
	b.current.columns = append(b.current.columns, added...)
	return nil
}

// properties reads key=value words.
func properties(words []string) (map[string]string, error) {
	found := map[string]string{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return nil, usage("Expected <key>=<value>, but got %s", word)
		}
		found[key] = value
	}
	return found, nil
}
