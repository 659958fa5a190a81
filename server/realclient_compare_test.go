package server_test

import (
	"flag"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

func identifier() *regexp.Regexp { return regexp.MustCompile(`0x[0-9a-f]{32}`) }

// names makes two servers' texts comparable.
type names struct {
	known    map[string]string // identifiers to names
	replaced []string          // texts and what stands for them, by turns
}

func (n *names) know(id, name string) { n.known[id] = name }

func (n *names) replace(oldNew ...string) { n.replaced = append(n.replaced, oldNew...) }

// masks are what differs between two runs of cl on one server: a pattern and what stands for
// its matches.
func masks() [][2]string {
	return [][2]string{
		{`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00)?`, "<time>"},
		{`\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}`, "<time>"},
		{`(?m)^((?:time|time_\w+|last_updated|started|memory_max|memory|memory_usage|cpu_usage|id|remote|remote_history) +: ).*`, "$1<value>"},
		{`(?m)^((?:email|last_login|disk) +: ).*`, "$1<value>"},
		{`\b1[789]\d{8}\b`, "<time>"},
		{`(line 1: +)\d+ Killed`, "$1<pid> Killed"},
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

// in returns a text with names instead of identifiers and of what differs between two runs.
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

// difference is one between CodaLab's server and ours that is on purpose.
type difference struct {
	// step, stock and ours match the step's line in the script, a line that only CodaLab's
	// server makes cl print, and one that only ours does. Of the latter two one may be empty.
	step, stock, ours string
	// because says why ours differs.
	because string
}

// metDifferences are the differences that a test has met, by their index.
type metDifferences struct {
	mu  sync.Mutex
	met map[int]bool
}

// unordered matches the steps whose lines cl prints in the order of a Python set or of a database.
const unordered = `^\w+ (rm|gls)\b`

func sortLines(text string) string {
	return strings.Join(slices.Sorted(strings.SplitSeq(text, "\n")), "\n")
}

// check compares what a step printed with the two servers.
func (m *metDifferences) check(t *testing.T, s step, stock, ours string) {
	t.Helper()
	if regexp.MustCompile(unordered).MatchString(s.text) {
		stock, ours = sortLines(stock), sortLines(ours)
	}
	gone, come := lineDifference(stock, ours)
	var left strings.Builder
	for _, line := range gone {
		if !m.allows(s, true, line) {
			left.WriteString("\n- " + line)
		}
	}
	for _, line := range come {
		if !m.allows(s, false, line) {
			left.WriteString("\n+ " + line)
		}
	}
	if left.Len() > 0 {
		t.Errorf("%s: %s (- CodaLab's server, + ours)%s", s.where, s.text, left.String())
	}
}

func (m *metDifferences) allows(s step, stock bool, line string) bool {
	for i, d := range differences() {
		pattern := d.ours
		if stock {
			pattern = d.stock
		}
		if pattern != "" && regexp.MustCompile(d.step).MatchString(s.text) && regexp.MustCompile(`^(?:`+pattern+`)$`).MatchString(line) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.met == nil {
				m.met = map[int]bool{}
			}
			m.met[i] = true
			return true
		}
	}
	return false
}

// complete complains about differences that no step shows.
func (m *metDifferences) complete(t *testing.T) {
	t.Helper()
	for i, d := range differences() {
		if !m.met[i] {
			t.Errorf("no step shows this difference any more: %+v", d)
		}
	}
}

// flagRun is the value of -run.
func flagRun() string {
	if f := flag.Lookup("test.run"); f != nil && f.Value.String() != "TestRealClient" {
		return f.Value.String()
	}
	return ""
}

// lineDifference returns the lines of a that are not in b, and those of b that are not in a, by
// a longest common subsequence.
func lineDifference(a, b string) (gone, come []string) {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	common := make([][]int, len(x)+1)
	for i := range common {
		common[i] = make([]int, len(y)+1)
	}
	for i := range slices.Backward(x) {
		for j := range slices.Backward(y) {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if x[i] == y[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(x) || j < len(y) {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			i, j = i+1, j+1
		case j == len(y) || (i < len(x) && common[i+1][j] >= common[i][j+1]):
			gone, i = append(gone, x[i]), i+1
		default:
			come, j = append(come, y[j]), j+1
		}
	}
	return gone, come
}
