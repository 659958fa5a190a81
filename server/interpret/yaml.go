package interpret

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cl-slurm/cl-slurm/codalab"
)

var errYAML = errors.New("no plain YAML")

// parseYAML reads one YAML document. Scalars have the types of YAML 1.1, which CodaLab's own server
// reads: "yes" is true, and "1e-3" is a text.
func parseYAML(text string) (value any, err error) {
	if len(text) > maxYAML {
		return nil, errYAML
	}
	defer func() {
		if r := recover(); r != nil { // the library reads files of users
			err = fmt.Errorf("%w: %v", errYAML, r)
		}
	}()
	decoder := yaml.NewDecoder(strings.NewReader(text))
	var document, second yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err //nolint:wrapcheck // only its presence counts
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errYAML
	}
	c := yamlConverter{left: maxNodes}
	return c.value(&document, 0)
}

// yamlConverter turns nodes into values. It bounds their number, since aliases may repeat a node many
// times.
type yamlConverter struct{ left int }

func (c *yamlConverter) value(n *yaml.Node, depth int) (any, error) {
	if c.left--; c.left < 0 || depth > maxDepth {
		return nil, errYAML
	}
	if n.Style&yaml.TaggedStyle != 0 && !standardTag(n.Tag) {
		return nil, errYAML
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return c.value(n.Content[0], depth+1)
	case yaml.AliasNode:
		return c.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, element := range n.Content {
			value, err := c.value(element, depth+1)
			if err != nil {
				return nil, err
			}
			list[i] = value
		}
		return list, nil
	case yaml.MappingNode:
		dict := map[string]any{}
		return dict, c.fill(dict, n, depth)
	case yaml.ScalarNode:
		return scalar(n)
	}
	return nil, errYAML
}

// fill adds a mapping's keys to dict. Keys that it merges from others do not replace its own.
func (c *yamlConverter) fill(dict map[string]any, n *yaml.Node, depth int) error {
	own := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, element := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.Tag == "!!merge" {
			if err := c.merge(dict, element, depth+1); err != nil {
				return err
			}
			continue
		}
		name, err := c.value(key, depth+1)
		if err != nil {
			return err
		}
		switch name.(type) {
		case []any, map[string]any:
			return errYAML
		}
		if own[keyText(name)], err = c.value(element, depth+1); err != nil {
			return err
		}
	}
	maps.Copy(dict, own)
	return nil
}

// keyText is a key as Python writes it in JSON.
func keyText(key any) string {
	switch v := key.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	}
	return codalab.PythonStr(key)
}

func (c *yamlConverter) merge(dict map[string]any, n *yaml.Node, depth int) error {
	if c.left--; c.left < 0 || depth > maxDepth {
		return errYAML
	}
	switch n.Kind {
	case yaml.AliasNode:
		return c.merge(dict, n.Alias, depth+1)
	case yaml.MappingNode:
		return c.fill(dict, n, depth+1)
	case yaml.SequenceNode:
		for i := len(n.Content) - 1; i >= 0; i-- { // the first has precedence
			if err := c.merge(dict, n.Content[i], depth+1); err != nil {
				return err
			}
		}
		return nil
	case yaml.DocumentNode, yaml.ScalarNode:
	}
	return errYAML
}

// The forms of plain scalars in YAML 1.1, as PyYAML reads them.
var (
	yamlBool  = regexp.MustCompile(`^(?:(yes|Yes|YES|true|True|TRUE|on|On|ON)|no|No|NO|false|False|FALSE|off|Off|OFF)$`)
	yamlNull  = regexp.MustCompile(`^(?:~|null|Null|NULL|)$`)
	yamlInt   = regexp.MustCompile(`^[-+]?(?:0b[01_]+|0[0-7_]*|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$`)
	yamlFloat = regexp.MustCompile(`^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?)$`)
	yamlInf   = regexp.MustCompile(`^[-+]?\.(?:inf|Inf|INF)$`)
	yamlNaN   = regexp.MustCompile(`^\.(?:nan|NaN|NAN)$`)
)

func scalar(n *yaml.Node) (any, error) {
	text := n.Value
	isQuoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	isTagged := n.Style&yaml.TaggedStyle != 0
	switch {
	case isTagged && n.Tag == "!!str", isQuoted && !isTagged:
		return text, nil
	case !isQuoted && strings.Contains(text, "\t"):
		return nil, errYAML // PyYAML does not allow it
	}
	return plain(text), nil
}

// standardTag reports whether a tag is of a type that values have.
func standardTag(tag string) bool {
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq":
		return true
	}
	return false
}

// plain is a scalar without quotes. Dates stay texts.
func plain(text string) any {
	digits := strings.ReplaceAll(text, "_", "")
	switch {
	case yamlNull.MatchString(text):
		return nil
	case yamlBool.MatchString(text):
		return yamlBool.FindStringSubmatch(text)[1] != ""
	case yamlInt.MatchString(text):
		if n, ok := new(big.Int).SetString(digits, 0); ok && len(text) < maxWidth {
			return json.Number(n.String())
		}
	case yamlFloat.MatchString(text):
		f, _ := strconv.ParseFloat(digits, 64) // infinite if it is too large
		return codalab.PythonFloat(f)
	case yamlInf.MatchString(text):
		f, _ := strconv.ParseFloat(strings.ReplaceAll(text, ".", ""), 64)
		return codalab.PythonFloat(f)
	case yamlNaN.MatchString(text):
		f, _ := strconv.ParseFloat("nan", 64)
		return codalab.PythonFloat(f)
	}
	return text
}
