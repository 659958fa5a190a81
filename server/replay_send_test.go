package server_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// reply is an answer of our server.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// ours replaces the recorded machine's places by ours, recorded does the reverse.
func (p *replay) ours(text string) string {
	for _, place := range p.places {
		text = strings.ReplaceAll(text, place[0], place[1])
	}
	return text
}

func (p *replay) recorded(text string) string {
	for _, place := range p.places[2:] {
		text = strings.ReplaceAll(text, place[1], place[0])
	}
	return text
}

// request returns a recorded request as it goes over the wire: with the recorded target, headers and
// kind of body, and with our identifiers.
func (p *replay) request(r *recording, line int) []byte {
	p.t.Helper()
	e := r.lines[line]
	in := func(text string) string { return p.ids.inRequest(r.name, p.ours(text)) }
	body := []byte(in(e.Body))
	if strings.ContainsRune(e.Body, utf8.RuneError) {
		body = lostBody(p.t, fmt.Sprint(r.name, " ", line), e.Body)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s %s HTTP/1.1\r\n", e.Method, in(e.Target))
	chunked := false
	for _, h := range e.Header {
		value := in(h[1])
		switch h[0] {
		case "Content-Length":
			value = strconv.Itoa(len(body))
		case "Transfer-Encoding":
			chunked = true
		}
		fmt.Fprintf(&out, "%s: %s\r\n", h[0], value)
	}
	out.WriteString("\r\n")
	if !chunked {
		out.Write(body)
		return out.Bytes()
	}
	for len(body) > 0 {
		chunk := body[:min(len(body), 16<<10)]
		body = body[len(chunk):]
		fmt.Fprintf(&out, "%X\r\n%s\r\n", len(chunk), chunk)
	}
	out.WriteString("0\r\n\r\n")
	return out.Bytes()
}

// send sends a request over a connection of its own. It is safe for concurrent use.
func (p *replay) send(request []byte) reply {
	got, err := func() (got reply, err error) {
		var d net.Dialer
		c, err := d.DialContext(p.t.Context(), "tcp", p.address)
		if err != nil {
			return got, err
		}
		defer func() { _ = c.Close() }() // the answer is complete by then
		if _, err := c.Write(request); err != nil {
			return got, err
		}
		method, _, _ := bytes.Cut(request, []byte(" "))
		r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: string(method)})
		if err != nil {
			return got, err
		}
		defer func() { _ = r.Body.Close() }() // read to its end
		body, err := io.ReadAll(r.Body)
		return reply{r.StatusCode, r.Header, body}, err
	}()
	if err != nil {
		p.t.Errorf("%.100s: %v", request, err)
	}
	return got
}

// entry is one of an archive: a directory if its name ends with a slash.
type entry struct{ name, text string }

// trees are the directories in archives of the recordings, by line: the archives' bytes are lost.
func trees() map[string][]entry {
	multi := []entry{{"./", ""}, {"./a.txt", "hello\n"}, {"./d/", ""}, {"./d/sub/", ""}, {"./d/sub/f", "x\n"}}
	return map[string][]entry{
		"cli 28":    {{"./", ""}, {"./sub/", ""}, {"./sub/f", "x\n"}},
		"cli 40":    multi,
		"cli 86":    {{"./", ""}, {"./sub/", ""}, {"./sub/f", "x\n"}},
		"worker 25": {{"./", ""}, {"./msg", "hello"}, {"./out", "done\n"}, {"./stderr", ""}, {"./stdout", "hello\n"}},
		"worker 46": {{"./", ""}, {"./msg", "hello"}, {"./stderr", ""}, {"./stdout", ""}},
		"worker 51": multi,
		"worker 55": {{"./", ""}, {"./out", "done\n"}, {"./stderr", "cat: x: Is a directory\n"}, {"./stdout", ""}},
	}
}

// packed are contents as Python packs them, without the ten bytes of gzip's header.
func packed() map[string]string {
	return map[string]string{
		"":        "0300" + "00000000" + "00000000",
		"x\n":     "abe00200" + "1f08ea46" + "02000000",
		"hello":   "cb48cdc9c90700" + "86a61036" + "05000000",
		"hello\n": "cb48cdc9c9e70200" + "20303a36" + "06000000",
	}
}

// packedText returns the contents that are packed in a body of a recording.
func packedText(lost string) (text string, tail []byte, ok bool) {
	for text, digits := range packed() {
		tail, _ := hex.DecodeString(digits)
		if strings.HasPrefix(lost, "\x1f\uFFFD\b") && strings.HasSuffix(lost, lossy(tail)) {
			return text, tail, true
		}
	}
	return "", nil, false
}

// lossy returns bytes as a recording has them.
func lossy(data []byte) string {
	var out strings.Builder
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		out.WriteRune(r)
		data = data[n:]
	}
	return out.String()
}

// lostBody returns the body of a request that is not whole in the recording: the packed file, or an
// archive of the same tree.
func lostBody(tb testing.TB, line, recorded string) []byte {
	tb.Helper()
	if tree, ok := trees()[line]; ok {
		return archive(tb, tree)
	}
	_, tail, ok := packedText(recorded)
	if !ok {
		tb.Fatalf("%s: the request's body %q is lost", line, recorded)
	}
	return append([]byte("\x1f\x8b\b\x00\x00\x00\x00\x00\x00\x03"), tail...)
}

func archive(tb testing.TB, tree []entry) []byte {
	tb.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	for _, e := range tree {
		h := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.text)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(e.name, "/") {
			h.Mode, h.Typeflag = 0o755, tar.TypeDir
		}
		must(tb, files.WriteHeader(h))
		_, err := io.WriteString(files, e.text)
		must(tb, err)
	}
	must(tb, files.Close())
	must(tb, zipped.Close())
	return out.Bytes()
}

// unpack returns the entries of an archive, with modes.
func unpack(data []byte) (string, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	files := tar.NewReader(zipped)
	var out strings.Builder
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return out.String(), nil
		}
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "%s %c %o %q\n", h.Name, h.Typeflag, h.Mode, text)
	}
}
