package stocktest_test

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
	"github.com/cl-slurm/cl-slurm/codalab/stocktest"
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
	u.call("PUT", "/bundles/"+uuid+"/contents/blob/?filename=data.txt&unpack=0", readerOf([]byte(text))).wantStatus(http.StatusOK)
	return uuid
}

// uploads sends a run's results as a worker does.
func (w *worker) uploads(uuid string, tarball []byte) answer {
	w.Helper()
	return w.call("PUT", "/bundles/"+uuid+"/contents/blob/?filename=bundle.tar.gz&finalize_on_success=0&store=", readerOf(tarball))
}

func (u *user) describe(uuid, path string) answer {
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

// awaitRead waits for a read message and checks its arguments.
func (w *worker) awaitRead(uuid, path, kind string, args object) object {
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

func targetInfo(uuid, path string, more object) object {
	info := object{"name": path, "size": 5, "perm": 420, "type": "file", "resolved_target": object{"bundle_uuid": uuid, "subpath": path}}
	maps.Copy(info, more)
	return object{"target_info": info}
}

func (on *trial) readRunning() {
	u, w, uuid := on.runningRun()

	done := on.inBackground(func() answer { return u.describe(uuid, "?depth=1") })
	m := w.awaitRead(uuid, "", "get_target_info", object{"depth": 1.0})
	w.reply(m, targetInfo(uuid, "", object{"type": "directory", "contents": []object{{"name": "out", "size": 5, "perm": 420, "type": "file"}}}))
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
		done := on.inBackground(func() answer { return u.blob(uuid, "out"+c.query, c.ask...) })
		w.reply(w.awaitRead(uuid, "out", "get_target_info", object{"depth": 0.0}), targetInfo(uuid, "out", nil))
		w.replyData(w.awaitRead(uuid, "out", c.kind, c.args), gzipped("hello"))
		a := on.receive(done).wantStatus(http.StatusOK)
		on.wantEqual("the file", string(a.body), "hello")
		on.wantEqual("its target type", a.header.Get("Target-Type"), "file")
		on.wantEqual("its size", a.header.Get("X-Codalab-Target-Size"), "5")
	}

	dir := archive("out", "hello")
	done = on.inBackground(func() answer { return u.blob(uuid, "") })
	w.reply(w.awaitRead(uuid, "", "get_target_info", nil), targetInfo(uuid, "", object{"type": "directory"}))
	w.replyData(w.awaitRead(uuid, "", "stream_directory", nil), dir)
	a := on.receive(done).wantStatus(http.StatusOK)
	if !bytes.Equal(a.body, dir) || a.header.Get("Content-Type") != "application/gzip" || a.header.Get("Target-Type") != "directory" {
		on.Errorf("the directory is %s, %v", a, a.header)
	}
}

func (on *trial) readFails() {
	u, w, uuid := on.runningRun()
	// The server answers 404 to a failed description, whatever the worker's code.
	for _, code := range []int{404, 403, 500} {
		done := on.inBackground(func() answer { return u.describe(uuid, "x") })
		w.replyError(w.awaitRead(uuid, "x", "get_target_info", nil), code)
		on.wantEqual("the answer", string(on.receive(done).wantStatus(http.StatusNotFound).body), refusal)
	}
	for code, want := range map[int]int{404: 404, 403: 403, 409: 400, 500: 500} {
		done := on.inBackground(func() answer { return u.blob(uuid, "x") })
		w.reply(w.awaitRead(uuid, "x", "get_target_info", nil), targetInfo(uuid, "x", nil))
		w.replyError(w.awaitRead(uuid, "x", "stream_file", nil), code)
		on.receive(done).wantError(want)
	}
}

func (on *trial) readNoLongerRunning() {
	u, w, uuid := on.runningRun()
	done := on.inBackground(func() answer { return u.describe(uuid, "x") })
	for range 2 {
		w.reply(w.awaitRead(uuid, "x", "get_target_info", nil), object{"error_code": 500, "error_message": "Bundle no longer running"})
	}
	on.wantEqual("the answer", string(on.receive(done).wantStatus(http.StatusNotFound).body), "Bundle no longer running")
}

func (on *trial) foreignSocket() {
	u := on.owner()
	w, other := u.worker(newTag()), u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.startRunning(uuid)
	done := on.inBackground(func() answer { return u.describe(uuid, "x") })
	m := w.awaitRead(uuid, "x", "get_target_info", nil)
	other.call("POST", other.path("reply", socket(m)), targetInfo(uuid, "x", nil)).wantStatus(http.StatusForbidden, "Not your socket ID!")
	w.call("POST", w.path("reply_data", socket(m)), nil).wantStatus(http.StatusBadRequest, "Missing header message.")
	w.reply(m, targetInfo(uuid, "x", nil))
	on.receive(done).wantStatus(http.StatusOK)
	// The socket ends with its reader.
	w.call("POST", w.path("reply", socket(m)), targetInfo(uuid, "x", nil)).wantStatus(http.StatusForbidden, "Not your socket ID!")
}

func (on *trial) readPreparing() {
	u, _, uuid := on.claimedRun()
	const words = "hasn't started running yet, files not available"
	u.describe(uuid, "").wantStatus(http.StatusNotFound, words)
	u.blob(uuid, "stdout").wantStatus(http.StatusNotFound, words)
}

func (on *trial) upload() {
	u, w, uuid := on.runningRun()
	w.uploads(uuid, archive("first", "hello")).wantStatus(http.StatusOK)
	u.wantState(uuid, codalab.StateRunning)
	on.wantEqual("the answer", string(w.uploads(uuid, archive("second", "hello again")).wantStatus(http.StatusOK).body), "")
	b := w.finishReady(uuid)
	if n := b.Metadata.Int("data_size"); n != 4096 {
		on.Errorf("data_size is %d, want that of the last report", n)
	}
	if info := u.describe(uuid, "?depth=1").described(); info.Type != codalab.TargetDirectory || info.Name != uuid || len(info.Contents) != 1 || info.Contents[0].Name != "second" {
		on.Errorf("the contents are %+v", info)
	}
	a := u.blob(uuid, "second").wantStatus(http.StatusOK)
	on.wantEqual("the file", string(a.body), "hello again")
	on.wantEqual("its size", a.header.Get("X-Codalab-Target-Size"), "11")
	on.wantEqual("its encoding", a.header.Get("Content-Encoding"), "identity")
	on.wantEqual("a section", string(u.blob(uuid, "second", "Range", "bytes=1-4").wantStatus(http.StatusOK).body), "ello")
	on.wantEqual("a section behind the end", string(u.blob(uuid, "second", "Range", "bytes=50-60").wantStatus(http.StatusOK).body), "")
	u.describe(uuid, "first").wantStatus(http.StatusNotFound, "Path 'first' in bundle "+uuid+" not found")
	u.blob(uuid, "first").wantStatus(http.StatusNotFound, "Path 'first' in bundle "+uuid+" not found")
	u.blob(uuid, "", "Range", "bytes=1-4").wantStatus(http.StatusBadRequest)
	w.uploads(uuid, archive("out", "too late")).wantStatus(http.StatusForbidden, "Contents cannot be modified, bundle already finalized.")
}

func (on *trial) brokenUpload() {
	u, w := on.ownerWithWorker()
	for words, want := range map[string]codalab.State{
		"left": codalab.StateFailed, "cleared": codalab.StateReady, "forgotten": codalab.StateReady,
	} {
		uuid := u.run(w.id, nil)
		w.startRunning(uuid)
		const failure = "Upload failed: Invalid archive upload: failed to unpack archive."
		whole := archive("out", strings.Repeat("hello", 1000))
		w.uploads(uuid, whole[:len(whole)-20]).wantStatus(http.StatusBadRequest, failure)
		b := u.bundle(uuid)
		on.wantEqual("the state", string(b.State), "failed")
		on.wantEqual("failure_message", b.Metadata.String("failure_message"), failure)
		w.uploads(uuid, whole).wantStatus(http.StatusForbidden, "Contents cannot be modified, bundle already finalized.")
		// Its worker still has the run, and reports it again.
		w.reportRunning(uuid)
		if words == "forgotten" {
			u.call("PATCH", "/bundles", one("bundles", object{"metadata": object{"failure_message": ""}}, object{"id": uuid})).wantStatus(http.StatusOK)
			on.wantEqual("failure_message", u.bundle(uuid).Metadata.String("failure_message"), "")
		}
		w.uploads(uuid, archive("out", "hello")).wantStatus(http.StatusOK)
		// The failure of the first upload stays, unless a user removes the message or the
		// worker reports another one, which may be empty.
		end := ended(uuid, 0)
		if words == "cleared" {
			end["failure_message"] = ""
		}
		w.await(codalab.MessageMarkFinalized, uuid, end)
		u.awaitState(uuid, want)
		on.wantEqual("the file", string(u.blob(uuid, "out").wantStatus(http.StatusOK).body), "hello")
	}
}

func (on *trial) refusedCalls() {
	on.grant(stocktest.User{Name: on.site.owner.Name, Password: "wrong"}).wantStatus(http.StatusUnauthorized, `"invalid_grant"`)
	u, w := on.ownerWithWorker()
	uuid := codalab.NewUUID()
	u.call("GET", "/bundles/"+uuid, nil).wantStatus(http.StatusNotFound, "Bundle "+uuid+" not found")
	w.call("POST", w.path("start_bundle", uuid), object{"hostname": "x", "start_time": time.Now().Unix()}).
		wantStatus(http.StatusNotFound, "Could not find bundle with uuid "+uuid)
	// A user without permission does not learn that the bundle does not exist.
	u.describe(uuid, "").wantStatus(http.StatusForbidden, "does not have sufficient permissions on bundle "+uuid+" (have none, need read).")
	w.uploads(uuid, archive("out", "hello")).wantStatus(http.StatusForbidden, "(have none, need all).")
	u.token = "no token of this server"
	u.call("GET", "/user", nil).wantStatus(http.StatusUnauthorized, "User is not authenticated.")
	w.post().wantStatus(http.StatusUnauthorized, "User is not authenticated.")
}

// Only cl-server has these calls. A bridge then makes one for each run.
func (on *trial) severalRuns() {
	_, w := on.ownerWithWorker()
	w.call("POST", w.path("start_bundles"), codalab.StartBundles{Bundles: []codalab.BundleStart{}}).wantStatus(http.StatusNotFound)
	w.call("POST", w.path("results"), bytes.NewReader(make([]byte, 1<<20))).wantStatus(http.StatusNotFound)
}
