package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
)

// Read reads and checks a configuration file. Its errors name the file, and the line of
// the file where there is one. Mistakes in several tables have one line each.
func Read(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	c, err := Parse(bytes.NewReader(data))
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	if c.Path, err = filepath.Abs(path); err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	if !sqldb.HasPassword(c.Ledger) {
		return c, nil
	}
	if err := strictmodes.CheckSecretFile("ledger's password", path); err != nil {
		return Config{}, fmt.Errorf("%w, or put the password into ~/.pgpass", err)
	}
	return c, nil
}

// Parse reads and checks a configuration.
func Parse(r io.Reader) (Config, error) {
	var c Config
	if err := toml.NewDecoder(r).DisallowUnknownFields().Decode(&c); err != nil {
		return Config{}, explain(err)
	}
	if err := c.addDefaults(); err != nil {
		return Config{}, err
	}
	return c, c.check()
}

// addDefaults gives each key that the file leaves out the default of [Keys].
func (c *Config) addDefaults() error {
	var d Config
	if err := toml.Unmarshal(defaultsFile(), &d); err != nil {
		return fmt.Errorf("read the defaults: %w", err)
	}
	queue := d.Queue[anyName]
	d.Queue = nil
	fill(c, d)
	fill(&c.Slurm, d.Slurm)
	fill(&c.Image, d.Image)
	fill(&c.Cache, d.Cache)
	fill(&c.Staging, d.Staging)
	for _, q := range c.Queue {
		fill(q, *queue)
	}
	if !c.LowWater.set {
		c.LowWater.LowWater = DefaultLowWater()
	}
	return nil
}

// fill sets the fields of a table that are zero to those of its defaults.
func fill[T any](table *T, defaults T) {
	fields, values := reflect.ValueOf(table).Elem(), reflect.ValueOf(defaults)
	for i := range fields.NumField() {
		if f := fields.Field(i); f.IsZero() {
			f.Set(values.Field(i))
		}
	}
}

// explain returns an error of one line, with the number of the wrong line and its fault.
func explain(err error) error {
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(unknown.Errors) > 0 {
		first := unknown.Errors[0]
		line, _ := first.Position()
		return fmt.Errorf("line %d: unknown key %s", line, strings.Join(first.Key(), "."))
	}
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := wrong.Position()
		where := ""
		if key := wrong.Key(); len(key) > 0 {
			where = strings.Join(key, ".") + ": "
		}
		return fmt.Errorf("line %d: %s%s", line, where, plainWords(wrong))
	}
	return err
}

// wrongType matches go-toml's error for a value of the wrong type, which has Go's names for types.
var wrongType = regexp.MustCompile(`cannot decode TOML (\w+) into struct field \S+ of type \*?(?:\w+\.)?(\w+)`)

// plainWords returns what go-toml says of a wrong value, for operators.
func plainWords(err error) string {
	text := strings.TrimPrefix(err.Error(), "toml: ")
	m := wrongType.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	const quoted = "a text in quotes"
	want := map[string]string{
		"string": quoted, "RetryBegun": quoted, "Architecture": quoted, "WorkingDirDisk": quoted, "Name": quoted, "ResultsMode": quoted, "SbatchOption": quoted,
		"int": "a whole number", "bool": "true or false",
		"Size": "a text such as \"2g\"", "Duration": "a text such as \"3h\"", "LowWater": "a text such as \"50g\" or \"5%\"",
	}[m[2]]
	return fmt.Sprintf("want %s, not TOML's %s", cmp.Or(want, "another kind of value"), m[1])
}
