package codalab

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// SearchKeys are the keys by which bundles can be searched for: those that the server treats as special (codalab/model/
// bundle_model.py: search_bundles), and those of metadata. A key that begins with "dependency/" or a slash is one, too.
func SearchKeys() []string {
	keys := []string{
		"name", "type", "bundle_type", "state", "uuid", "id", "command", "owner", "owner_id", "group", "size", "dependency", "worksheet",
		"host_worksheet", "frozen", "is_anonymous", SecretsKey,
	}
	for _, kind := range []string{TypeRun, TypeDataset, TypeMake} {
		for _, k := range MetadataKeys(kind) {
			if !slices.Contains(keys, k.Key) {
				keys = append(keys, k.Key)
			}
		}
	}
	return keys
}

// searchOptions are the keywords that begin with a dot.
func searchOptions() (words, keys []string) {
	return []string{".mine", ".notmine", ".shared", ".floating", ".last", ".count"},
		[]string{".limit", ".offset", ".format", ".before", ".after"}
}

// States are the states of bundles.
func States() []State {
	return []State{
		StateUploading, StateCreated, StateStaged, StateMaking, StateStarting, StatePreparing, StateRunning, StateFinalizing, StateReady,
		StateFailed, StateKilled, StateWorkerOffline,
	}
}

// searchTerm is a keyword with a key. A bare word has none, and finds names.
var searchTerm = lazyregexp.New(`(?s)^([.\pL\pN_/]+)(!=|<=|>=|=|<|>)(.*)$`)

// SearchMistake returns a sentence about the first keyword of a search for bundles that has found nothing and could find
// nothing, because it is misspelt; empty if there is none. Old bundles may have keys that are not in SearchKeys, so that
// only an empty result is proof. nearest returns the most similar word of a list, or "".
func SearchMistake(keywords []string, nearest func(typed string, list []string) string) string {
	for _, word := range keywords {
		if text := searchMistake(word, nearest); text != "" {
			return text
		}
	}
	return ""
}

func searchMistake(word string, nearest func(string, []string) string) string {
	words, options := searchOptions()
	if strings.HasPrefix(word, "/") {
		return ""
	}
	m := searchTerm().FindStringSubmatch(word)
	if m == nil {
		if near := nearest(word, words); strings.HasPrefix(word, ".") && near != "" && !slices.Contains(words, word) {
			return fmt.Sprintf("There is no keyword %s; did you mean %s?", word, near)
		}
		return ""
	}
	key, value := m[1], m[3]
	known := slices.Concat(SearchKeys(), options)
	switch {
	case slices.Contains([]string{"owner", "owner_id", "group"}, key) && slices.Contains([]string{".sort", ".sort-"}, value):
		return fmt.Sprintf("Bundles cannot be sorted by %s.", key)
	case strings.HasPrefix(key, "dependency/"):
	case !slices.Contains(known, key):
		if near := nearest(key, known); near != "" {
			return fmt.Sprintf("There is no key %s to search by; did you mean %s?", key, near)
		}
		return fmt.Sprintf("There is no key %s to search by; cl help search lists the keys.", key)
	case key == "state" && !strings.HasPrefix(value, "."):
		return unknownValue("state", value, texts(States()), nearest)
	case (key == "type" || key == "bundle_type") && !strings.HasPrefix(value, "."):
		return unknownValue("type of bundles", value, []string{TypeRun, TypeDataset, TypeMake, TypeProgram, TypePrivate}, nearest)
	}
	sorts := []string{".sort", ".sort-", ".sum"}
	if near := nearest(value, sorts); strings.HasPrefix(value, ".") && near != "" && !slices.Contains(sorts, value) {
		return fmt.Sprintf("%s is no order; did you mean %s=%s?", word, key, near)
	}
	return ""
}

// unknownValue returns a sentence about the first of some values that is none of the known ones.
func unknownValue(what, list string, known []string, nearest func(string, []string) string) string {
	for value := range strings.SplitSeq(list, ",") {
		lower := strings.ToLower(value)
		if slices.Contains(known, lower) || strings.Contains(value, "%") || strings.Contains(value, ".*") {
			continue
		}
		if near := nearest(lower, known); near != "" {
			return fmt.Sprintf("There is no %s %q; did you mean %s?", what, value, near)
		}
		return fmt.Sprintf("There is no %s %q: it is one of %s.", what, value, strings.Join(known, ", "))
	}
	return ""
}

func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, one := range list {
		out[i] = string(one)
	}
	return out
}
