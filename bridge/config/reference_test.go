package config

import (
	"fmt"
	"strings"
)

// reference returns the lists of [Keys] for docs/keys.md, in Markdown.
func reference() string {
	var b strings.Builder
	section := "-"
	for _, k := range Keys() {
		if s := table(k.Name); s != section {
			section = s
			fmt.Fprintf(&b, "\n%s\n\n| key | type | default | meaning |\n|---|---|---|---|\n", title(s))
		}
		fallback := k.Otherwise
		if k.Default != "" {
			fallback = "`" + strings.Trim(k.Default, `"`) + "`"
		}
		follows := ""
		if Live(k.Name) {
			follows = " ↻"
		}
		fmt.Fprintf(&b, "| `%s`%s | %s | %s | %s |\n", k.Name, follows, k.Type, fallback, k.Meaning)
	}
	return b.String()
}

// table returns the first part of a key's name; empty for a key without a table.
func table(name string) string {
	first, _, ok := strings.Cut(name, ".")
	if !ok {
		return ""
	}
	return first
}

// title returns the heading of the keys of a table.
func title(table string) string {
	switch table {
	case "":
		return "### Before all tables"
	case "queue":
		return "### `[queue.NAME]`"
	case "link", "map":
		return "### `[[" + table + "]]`"
	}
	return "### `[" + table + "]`"
}
