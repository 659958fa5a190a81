package manners

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// readerOf hides the length of data, so that it is sent in chunks.
func readerOf(data []byte) io.Reader { return io.MultiReader(bytes.NewReader(data)) }

func gzipped(data string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(data)) // into memory
	_ = z.Close()
	return b.Bytes()
}

// archive is a tar.gz with one file.
func archive(name, text string) []byte {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	_ = t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}) // into memory
	_, _ = t.Write([]byte(text))
	_ = t.Close()
	return gzipped(b.String())
}

// data makes a dataset that is a file with this text.
func (u *user) data(text string) string {
	u.Helper()
	uuid := u.create(codalab.TypeDataset, object{}, nil)
	u.call("PUT", "/bundles/"+uuid+"/contents/blob/?filename=data.txt&unpack=0", readerOf([]byte(text))).is(http.StatusOK)
	return uuid
}

// uploads sends a run's results as a worker does.
func (w *worker) uploads(uuid string, tarball []byte) answer {
	w.Helper()
	return w.call("PUT", "/bundles/"+uuid+"/contents/blob/?filename=bundle.tar.gz&finalize_on_success=0&store=", readerOf(tarball))
}

func (u *user) info(uuid, path string) answer {
	return u.call("GET", "/bundles/"+uuid+"/contents/info/"+path, nil)
}

// described is the target that an answer describes.
func (a answer) described() codalab.TargetInfo {
	a.Helper()
	var info struct{ Data codalab.TargetInfo }
	a.into(&info)
	return info.Data
}

func (u *user) blob(uuid, path string, header ...string) answer {
	return u.call("GET", "/bundles/"+uuid+"/contents/blob/"+path, nil, append(header, "Accept-Encoding", "identity")...)
}

// reads waits for a read message and checks what it asks for.
func (w *worker) reads(uuid, path, kind string, args object) object {
	w.Helper()
	m := w.await(codalab.MessageRead, uuid)
	got, _ := m["read_args"].(object)
	if m["path"] != path || got["type"] != kind {
		w.Fatalf("the message is %v, want %s of %q", m, kind, path)
	}
	for k, v := range args {
		if got[k] != v {
			w.Errorf("%s is %v, want %v", k, got[k], v)
		}
	}
	return m
}

func target(uuid, path string, more object) object {
	info := object{"name": path, "size": 5, "perm": 420, "type": "file", "resolved_target": object{"bundle_uuid": uuid, "subpath": path}}
	maps.Copy(info, more)
	return object{"target_info": info}
}

func (on *trial) readRunning() {
	u, w, uuid := on.begun()

	done := on.later(func() answer { return u.info(uuid, "?depth=1") })
	m := w.reads(uuid, "", "get_target_info", object{"depth": 1.0})
	w.replies(m, target(uuid, "", object{"type": "directory", "contents": []object{{"name": "out", "size": 5, "perm": 420, "type": "file"}}}))
	if info := on.receive(done).described(); info.Type != codalab.TargetDirectory || len(info.Contents) != 1 || info.Resolved == nil || info.Resolved.BundleUUID != uuid {
		on.Errorf("the description is %+v", info)
	}

	for _, c := range []struct {
		query string
		ask   []string // headers
		kind  string
		args  object
	}{
		{"", nil, "stream_file", nil},
		{"", []string{"Range", "bytes=1-3"}, "read_file_section", object{"offset": 1.0, "length": 3.0}},
		{"?head=2&tail=1&truncation_text=...", nil, "summarize_file", object{"num_head_lines": 2.0, "num_tail_lines": 1.0, "max_line_length": 128.0, "truncation_text": "..."}},
	} {
		done := on.later(func() answer { return u.blob(uuid, "out"+c.query, c.ask...) })
		w.replies(w.reads(uuid, "out", "get_target_info", object{"depth": 0.0}), target(uuid, "out", nil))
		w.repliesData(w.reads(uuid, "out", c.kind, c.args), gzipped("hello"))
		a := on.receive(done).is(http.StatusOK)
		on.equal("the file", string(a.body), "hello")
		on.equal("its target type", a.header.Get("Target-Type"), "file")
		on.equal("its size", a.header.Get("X-Codalab-Target-Size"), "5")
	}

	dir := archive("out", "hello")
	done = on.later(func() answer { return u.blob(uuid, "") })
	w.replies(w.reads(uuid, "", "get_target_info", nil), target(uuid, "", object{"type": "directory"}))
	w.repliesData(w.reads(uuid, "", "stream_directory", nil), dir)
	a := on.receive(done).is(http.StatusOK)
	if !bytes.Equal(a.body, dir) || a.header.Get("Content-Type") != "application/gzip" || a.header.Get("Target-Type") != "directory" {
		on.Errorf("the directory is %s, %v", a, a.header)
	}
}

func (on *trial) readFails() {
	u, w, uuid := on.begun()
	// A description that fails is never found, whatever the worker says.
	for _, code := range []int{404, 403, 500} {
		done := on.later(func() answer { return u.info(uuid, "x") })
		w.repliesError(w.reads(uuid, "x", "get_target_info", nil), code)
		on.equal("the answer", string(on.receive(done).is(http.StatusNotFound).body), refusal)
	}
	for code, want := range map[int]int{404: 404, 403: 403, 409: 400, 500: 500} {
		done := on.later(func() answer { return u.blob(uuid, "x") })
		w.replies(w.reads(uuid, "x", "get_target_info", nil), target(uuid, "x", nil))
		w.repliesError(w.reads(uuid, "x", "stream_file", nil), code)
		on.receive(done).isError(want)
	}
}

func (on *trial) readNoLongerRunning() {
	u, w, uuid := on.begun()
	done := on.later(func() answer { return u.info(uuid, "x") })
	for range 2 {
		w.replies(w.reads(uuid, "x", "get_target_info", nil), object{"error_code": 500, "error_message": "Bundle no longer running"})
	}
	on.equal("the answer", string(on.receive(done).is(http.StatusNotFound).body), "Bundle no longer running")
}

func (on *trial) foreignSocket() {
	u := on.owner()
	w, other := u.worker(newTag()), u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	done := on.later(func() answer { return u.info(uuid, "x") })
	m := w.reads(uuid, "x", "get_target_info", nil)
	other.call("POST", other.path("reply", socket(m)), target(uuid, "x", nil)).is(http.StatusForbidden, "Not your socket ID!")
	w.call("POST", w.path("reply_data", socket(m)), nil).is(http.StatusBadRequest, "Missing header message.")
	w.replies(m, target(uuid, "x", nil))
	on.receive(done).is(http.StatusOK)
	// The socket is gone with who listened on it.
	w.call("POST", w.path("reply", socket(m)), target(uuid, "x", nil)).is(http.StatusForbidden, "Not your socket ID!")
}

func (on *trial) readPreparing() {
	u, _, uuid := on.taken()
	const words = "hasn't started running yet, files not available"
	u.info(uuid, "").is(http.StatusNotFound, words)
	u.blob(uuid, "stdout").is(http.StatusNotFound, words)
}

func (on *trial) upload() {
	u, w, uuid := on.begun()
	w.uploads(uuid, archive("first", "hello")).is(http.StatusOK)
	u.isIn(uuid, codalab.StateRunning)
	on.equal("the answer", string(w.uploads(uuid, archive("second", "hello again")).is(http.StatusOK).body), "")
	b := w.succeed(uuid)
	if n := b.Metadata.Int("data_size"); n != 4096 {
		on.Errorf("data_size is %d, want what the last report said", n)
	}
	if info := u.info(uuid, "?depth=1").described(); info.Type != codalab.TargetDirectory || info.Name != uuid || len(info.Contents) != 1 || info.Contents[0].Name != "second" {
		on.Errorf("the contents are %+v", info)
	}
	a := u.blob(uuid, "second").is(http.StatusOK)
	on.equal("the file", string(a.body), "hello again")
	on.equal("its size", a.header.Get("X-Codalab-Target-Size"), "11")
	on.equal("its encoding", a.header.Get("Content-Encoding"), "identity")
	on.equal("a section", string(u.blob(uuid, "second", "Range", "bytes=1-4").is(http.StatusOK).body), "ello")
	on.equal("a section behind the end", string(u.blob(uuid, "second", "Range", "bytes=50-60").is(http.StatusOK).body), "")
	u.info(uuid, "first").is(http.StatusNotFound, "Path 'first' in bundle "+uuid+" not found")
	u.blob(uuid, "first").is(http.StatusNotFound, "Path 'first' in bundle "+uuid+" not found")
	u.blob(uuid, "", "Range", "bytes=1-4").is(http.StatusBadRequest)
}

func (on *trial) brokenUpload() {
	u := on.owner()
	w := u.worker(newTag())
	for words, want := range map[string]codalab.State{
		"left": codalab.StateFailed, "cleared": codalab.StateReady, "forgotten": codalab.StateReady,
	} {
		uuid := u.run(w.id, nil)
		w.begin(uuid)
		const failure = "Upload failed: Invalid archive upload: failed to unpack archive."
		whole := archive("out", strings.Repeat("hello", 1000))
		w.uploads(uuid, whole[:len(whole)-20]).is(http.StatusBadRequest, failure)
		b := u.find(uuid)
		on.equal("the state", string(b.State), "failed")
		on.equal("failure_message", b.Metadata.String("failure_message"), failure)
		w.uploads(uuid, whole).is(http.StatusForbidden, "Contents cannot be modified, bundle already finalized.")
		// Its worker has the run still, and brings it back.
		w.revive(uuid)
		if words == "forgotten" {
			u.call("PATCH", "/bundles", one("bundles", object{"metadata": object{"failure_message": ""}}, object{"id": uuid})).is(http.StatusOK)
			on.equal("failure_message", u.find(uuid).Metadata.String("failure_message"), "")
		}
		w.uploads(uuid, archive("out", "hello")).is(http.StatusOK)
		// The failure of the first upload is the run's, unless somebody removes the message or
		// the worker reports another, the empty one for none.
		end := ended(uuid, 0)
		if words == "cleared" {
			end["failure_message"] = ""
		}
		w.await(codalab.MessageMarkFinalized, uuid, end)
		u.reaches(uuid, want)
		on.equal("the file", string(u.blob(uuid, "out").is(http.StatusOK).body), "hello")
	}
}

func (on *trial) uploadTooLate() {
	_, w, uuid := on.finished()
	w.uploads(uuid, archive("out", "hello")).is(http.StatusForbidden, "Contents cannot be modified, bundle already finalized.")
}

func (on *trial) dataset() {
	u := on.owner()
	uuid := u.data("hello")
	b := u.reaches(uuid, codalab.StateReady)
	if n := b.Metadata.Int("data_size"); n != 5 {
		on.Errorf("data_size is %d, want 5", n)
	}
	if info := u.info(uuid, "").described(); info.Type != codalab.TargetFile || info.Size != 5 || info.Name != uuid {
		on.Errorf("the description is %+v", info)
	}
	a := u.blob(uuid, "").is(http.StatusOK)
	on.equal("the file", string(a.body), "hello")
	on.equal("its size", a.header.Get("X-Codalab-Target-Size"), "5")
}

func (on *trial) noToken() {
	u := on.owner()
	u.token = "no token of this server"
	u.call("GET", "/user", nil).is(http.StatusUnauthorized, "User is not authenticated.")
	u.worker(newTag()).post().is(http.StatusUnauthorized, "User is not authenticated.")
}

func (on *trial) wrongPassword() {
	on.grant(Login{Name: on.target.Owner.Name, Password: "wrong"}).is(http.StatusUnauthorized, `"invalid_grant"`)
}

func (on *trial) unknownBundle() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := codalab.NewUUID()
	u.call("GET", "/bundles/"+uuid, nil).is(http.StatusNotFound, "Bundle "+uuid+" not found")
	w.call("POST", w.path("start_bundle", uuid), object{"hostname": "x", "start_time": time.Now().Unix()}).
		is(http.StatusNotFound, "Could not find bundle with uuid "+uuid)
	// Who has no permission is not told that there is nothing.
	u.info(uuid, "").is(http.StatusForbidden, "does not have sufficient permissions on bundle "+uuid+" (have none, need read).")
	w.uploads(uuid, archive("out", "hello")).is(http.StatusForbidden, "(have none, need all).")
}
