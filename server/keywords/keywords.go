// Package keywords reads the search words of CodaLab's clients, such as "name=train% .mine
// size=.sort-", into a Query. It only knows the grammar: the store has the keys of bundles,
// worksheets and users, and turns a Query into SQL.
//
// # Grammar
//
// Every word is one of these (codalab/model/bundle_model.py: search_bundles):
//
//	.mine .notmine .shared .floating   conditions without a value
//	.last                              newest first, as id=.sort-
//	.count                             the number of matches instead of the matches
//	.limit=N .offset=N .format=F       see Query
//	KEY=.sort KEY=.sort- KEY=.sum      order, reverse order, total of a key
//	KEY=VALUE[,VALUE…]                 the key has one of these values
//	KEY!=VALUE[,VALUE…]                the key has none of them
//	KEY<N KEY<=N KEY>N KEY>=N          the key's value is a number, on this side of N
//	/FILE:KEY                          the bundle has this value in a file
//	=TEXT                              some value of the object contains the text
//	TEXT                               a name or the uuid contains the text
//
// In a value, "%" and ".*" stand for any text.
//
// A key that begins with a slash is the genpath of a value in a file (package values), such as
// "/stats.json:test/error".
package keywords

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Bounds of a search. They keep the statements that the store makes of it small.
const (
	maxWords  = 100
	maxBytes  = 10_000 // of one word
	maxValues = 1000   // of all words together
	maxWild   = 100    // values with wildcards, each of which costs a pass over all objects
)

// DefaultLimit is the number of matches that a search without .limit returns.
const DefaultLimit = 10

// Keys of terms that no client can write, since "*" is no character of a key.
const (
	// Word is the key of a bare word: a name or the uuid contains the value.
	Word = "*"
	// Any is the key of "=TEXT": any value of the object contains the text.
	Any = ""
)

// Error is the refusal of a search. Its text is one sentence for the client.
type Error struct{ sentence string }

func (e *Error) Error() string { return e.sentence }

// Refuse returns an Error with a sentence.
func Refuse(format string, args ...any) error {
	return &Error{fmt.Sprintf(format, args...)}
}

// Query is a search.
type Query struct {
	// Words are the words of which it was read.
	Words []string
	// Terms are conditions, all of which an object must meet.
	Terms []Term
	// Sort is the order of the matches; nil for the default order.
	Sort *Sort
	// Count asks for the number of matches, Sum for the total of a key of the matches, which is
	// empty otherwise. Both mean all matches, whatever Limit and Offset are.
	Count bool
	Sum   string
	// Format is the post-function of the number that Count or Sum gives (interpret.ApplyPost).
	Format string
	// Limit bounds the number of matches; Offset is the number of matches that are skipped
	// before.
	Limit, Offset int
}

// Aggregate reports whether the search asks for a number instead of objects.
func (q Query) Aggregate() bool { return q.Count || q.Sum != "" }

// Term is a condition: a key has one of some values. A condition such as .mine has no values, and neither has that of
// a bundle that has a value in a file.
type Term struct {
	Key    string
	Values []Value
	// Op is "" for one of the values, "!=" for none of them, or "<", "<=", ">" or ">=" for a number on this side of
	// Bound.
	Op    string
	Bound float64
}

// UsesValues reports whether the search needs values in files.
func (q Query) UsesValues() bool {
	return q.Sort != nil && codalab.IsFileValue(q.Sort.Key) || codalab.IsFileValue(q.Sum) ||
		slices.ContainsFunc(q.Terms, func(t Term) bool { return codalab.IsFileValue(t.Key) })
}

// Sort is an order by the values of a key. Objects without the key do not match.
type Sort struct {
	Key        string
	Descending bool
}

// Value is a text with which a value is compared. A "%" in it stands for any text.
type Value string

// Wild reports whether the value has a wildcard.
func (v Value) Wild() bool { return strings.Contains(string(v), "%") }

// Pattern returns the value as a pattern for SQL's LIKE with the escape character "\".
func (v Value) Pattern() string {
	return strings.NewReplacer(`\`, `\\`, "_", `\_`).Replace(string(v))
}

// Parse reads the words of a search. It fails with an *Error.
func Parse(words []string) (Query, error) {
	if len(words) > maxWords {
		return Query{}, Refuse("A search may have at most %d keywords", maxWords)
	}
	q := Query{Words: words, Limit: DefaultLimit}
	for _, word := range words {
		if len(word) > maxBytes {
			return Query{}, Refuse("A keyword may have at most %d bytes", maxBytes)
		}
		if !utf8.ValidString(word) || strings.Contains(word, "\x00") {
			return Query{}, Refuse("A keyword must be UTF-8 text without null characters")
		}
		if !strings.HasPrefix(word, ".format=") && !codalab.IsFileValue(word) {
			word = strings.ReplaceAll(word, ".*", "%")
		}
		if err := q.add(word); err != nil {
			return Query{}, err
		}
	}
	return q, q.check()
}

// check bounds the values.
func (q Query) check() error {
	values, wild := 0, 0
	for _, t := range q.Terms {
		values += len(t.Values)
		for _, v := range t.Values {
			if v.Wild() {
				wild++
			}
		}
	}
	if values > maxValues {
		return Refuse("A search may have at most %d values", maxValues)
	}
	if wild > maxWild {
		return Refuse("A search may have at most %d words and values with wildcards", maxWild)
	}
	return nil
}

// add adds one word to the query.
func (q *Query) add(word string) error {
	switch word {
	case ".mine", ".notmine", ".shared", ".floating":
		q.Terms = append(q.Terms, Term{Key: word})
		return nil
	case ".last":
		q.Sort = &Sort{"id", true}
		return nil
	case ".count":
		q.Count = true
		return nil
	}
	if c, ok := codalab.ParseComparison(word); ok {
		return q.addComparison(c)
	}
	key, value, found := strings.Cut(word, "=")
	switch {
	case !found || !isKey(key):
		q.contains(Word, word)
	case key == Any:
		q.contains(Any, value)
	case key == ".limit":
		return readNumber(key, value, &q.Limit)
	case key == ".offset":
		return readNumber(key, value, &q.Offset)
	case key == ".format":
		q.Format = value
	default:
		q.addValues(key, value)
	}
	return nil
}

// addComparison adds a condition on the value of a key, or an order or a total.
func (q *Query) addComparison(c codalab.Comparison) error {
	switch c.Op {
	case "":
		q.Terms = append(q.Terms, Term{Key: c.Key})
	case "=":
		q.addValues(c.Key, c.Value)
	case "!=":
		q.Terms = append(q.Terms, Term{Key: c.Key, Values: split(c.Value), Op: c.Op})
	default:
		bound, ok := c.Bound()
		if !ok {
			return Refuse("%s%s needs a number, not '%s'", c.Key, c.Op, c.Value)
		}
		q.Terms = append(q.Terms, Term{Key: c.Key, Op: c.Op, Bound: bound})
	}
	return nil
}

// addValues adds the condition that a key has one of some values, or an order or a total.
func (q *Query) addValues(key, value string) {
	switch value {
	case ".sort", ".sort-":
		q.Sort = &Sort{key, value == ".sort-"}
	case ".sum":
		q.Sum = key
	default:
		q.Terms = append(q.Terms, Term{Key: key, Values: split(value)})
	}
}

// contains adds the condition that a value contains the text. All values contain an empty one.
func (q *Query) contains(key, text string) {
	if text != "" {
		q.Terms = append(q.Terms, Term{Key: key, Values: []Value{Value("%" + text + "%")}})
	}
}

// isKey reports whether a word's part before "=" is a key; otherwise the whole is a bare word.
func isKey(text string) bool { return regexp.MustCompile(`^[.\pL\pN_/]*$`).MatchString(text) }

// split returns the values of a list.
func split(list string) []Value {
	var values []Value
	for value := range strings.SplitSeq(list, ",") {
		values = append(values, Value(value))
	}
	return values
}

func readNumber(key, text string, to *int) error {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 0 {
		return Refuse("%s must be a number of at least 0, not '%s'", key, text)
	}
	*to = n
	return nil
}
