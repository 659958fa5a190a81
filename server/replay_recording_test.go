package server_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// exchange is a line of a recording: a request and its answer, or a command of cl that makes the
// requests after it. Bytes that are no UTF-8 are lost in it: each is U+FFFD.
type exchange struct {
	Command string      `json:"cmd"`
	Method  string      `json:"m"`
	Target  string      `json:"path"` // as in the request line, which may have an absolute URL
	Header  [][2]string `json:"h"`
	Body    string      `json:"b"`
	Status  int         `json:"s"`
	// AnswerHeader and Answer are what CodaLab's own server answered, Millis how long it took.
	AnswerHeader [][2]string `json:"rh"`
	Answer       string      `json:"rb"`
	Millis       int64       `json:"ms"`
}

func (e exchange) header(name string) string {
	for _, h := range e.AnswerHeader {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}

// bringsMessage reports whether the exchange is a check-in that brought a message. Its request is repeated
// until the message is there.
func (e exchange) bringsMessage() bool {
	return strings.HasSuffix(e.Target, "/checkin") && e.Answer != "[null]"
}

// recording is one of the recorded programs. Lines count from 1.
type recording struct {
	name   string
	lines  []exchange
	played map[int]bool
	begun  map[int]reply // check-ins that were sent before their message was due
}

func openRecording(t *testing.T, name string) *recording {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "codalab-1.7.3", name+".jsonl"))
	must(t, err)
	r := &recording{name: name, lines: []exchange{{}}, played: map[int]bool{0: true}, begun: map[int]reply{}}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e exchange
		must(t, json.Unmarshal(lines.Bytes(), &e))
		r.lines = append(r.lines, e)
	}
	must(t, lines.Err())
	must(t, f.Close())
	return r
}

// clock is the server's clock. It follows the recorded times and never goes back.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to.After(c.now) {
		c.now = to
	}
}
