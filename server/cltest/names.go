package cltest

import (
	"regexp"
	"strings"
)

func identifier() *regexp.Regexp { return regexp.MustCompile(`0x[0-9a-f]{32}`) }

// names makes two servers' texts comparable.
type names struct {
	known    map[string]string // identifiers to names
	replaced []string          // texts and their replacements, alternating
}

func (n *names) know(id, name string) { n.known[id] = name }

func (n *names) replace(oldNew ...string) { n.replaced = append(n.replaced, oldNew...) }

// masks returns patterns of values that differ between two runs of cl on one server, and
// their replacements.
func masks() [][2]string {
	return [][2]string{
		{`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00)?`, "<time>"},
		{`\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}`, "<time>"},
		{`(?m)^((?:time|time_\w+|last_updated|started|memory_max|memory|memory_usage|cpu_usage|id|remote|remote_history) +: ).*`, "$1<value>"},
		{`(?m)^((?:email|last_login|disk) +: ).*`, "$1<value>"},
		{`\b1[789]\d{8}\b`, "<time>"},
		{`(line 1:) +\d+ Killed`, "$1  <pid> Killed"},
		{`Container uptime [\d.]+s`, "Container uptime <time>"},
		{`UUIDs: .*`, "UUIDs: <ids>"},
		{`(?m)^staged_status +: .*\n`, ""}, // it changes while a run waits
		{`(?m)^! (Sent|Received) .*\n`, ""},
		{`(?m)^(codalab_home: ).*`, "$1<home>"},
		{`-{4,}`, "----"},
		{`(\S)  +`, "$1  "},
		{`(?m)^[a-z]+r[0-9a-f]{6}  .*\n`, ""}, // workers of other scripts
		{`(?m)^([a-z]+<R>  \d+/\d+  \d+/\d+)  \S+  \S+  \S+ ago`, "$1  <memory>  <disk>  <time> ago"},
		{`(?m) +$`, ""},
	}
}

// in returns a text with names in place of identifiers, and with the masks applied.
func (n *names) in(text string) string {
	for _, user := range regexp.MustCompile(`\b([a-z]\w*)\((0x[0-9a-f]{32})\)`).FindAllStringSubmatch(text, -1) {
		if _, known := n.known[user[2]]; !known {
			n.known[user[2]] = user[1] + "'s id"
		}
	}
	text = regexp.MustCompile(`0x[0-9a-f]{6,32}\b`).ReplaceAllStringFunc(text, func(id string) string {
		for known, name := range n.known {
			if known == id {
				return "<" + name + ">"
			}
			if strings.HasPrefix(known, id) {
				return "<" + name + "...>"
			}
		}
		if len(id) == len("0x")+32 {
			return "<id>"
		}
		return "<id...>"
	})
	text = strings.NewReplacer(n.replaced...).Replace(text)
	for _, mask := range masks() {
		text = regexp.MustCompile(mask[0]).ReplaceAllString(text, mask[1])
	}
	return text
}
