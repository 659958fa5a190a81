package manners

import (
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func (on *trial) runMessage() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, object{"request_time": "1m", "request_memory": "1g", "request_disk": "1g", "request_cpus": 2})
	var a answer
	for end := time.Now().Add(patience); !strings.Contains(string(a.body), uuid); a = w.post() {
		if time.Now().After(end) {
			on.Fatalf("%s is not offered; the last answer was %s", uuid, a)
		}
	}
	on.equal("the answer's type", a.header.Get("Content-Type"), "application/json")
	message := a.body[1 : len(a.body)-1]
	for key, want := range map[string]string{
		"cpus": "2", "gpus": "0", "time": "60.0", "memory": "1073741824", "disk": "1073741824",
		"docker_image": `"busybox:latest"`, "network": "true", "tag": `"` + w.id + `"`, "tag_exclusive": "false", "runs_left": "null",
	} {
		on.equal("resources."+key, raw(message, "resources", key), want)
	}
	for key, want := range map[string]string{
		"uuid": `"` + uuid + `"`, "bundle_type": `"run"`, "owner_id": `"` + u.id + `"`, "command": `"echo hello"`,
		"state": `"starting"`, "frozen": "null", "is_anonymous": "false", "dependencies": "[]", "location": "null",
	} {
		on.equal("bundle."+key, raw(message, "bundle", key), want)
	}
	on.equal("type", raw(message, "type"), `"run"`)
	on.equal("request_time", raw(message, "bundle", "metadata", "request_time"), `"1m"`)
	on.equal("exclude_patterns", raw(message, "bundle", "metadata", "exclude_patterns"), "[]")
	if args := raw(message, "bundle", "args"); !strings.HasPrefix(args, `"run \"echo hello\" --request-`) {
		on.Errorf("args are %s", args)
	}
	on.equal("state", string(w.find(uuid).State), "starting")
}

func (on *trial) equal(what, got, want string) {
	on.Helper()
	if got != want {
		on.Errorf("%s is %s, want %s", what, got, want)
	}
}

func (on *trial) defaultResources() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, object{"request_docker_image": "", "request_memory": ""})
	r, _ := w.await(codalab.MessageRun, uuid)["resources"].(object)
	for key, want := range map[string]any{
		"cpus": 1.0, "gpus": 0.0, "time": 0.0, "memory": float64(2 << 30), "disk": 0.0, "docker_image": "codalab/default-cpu:latest",
	} {
		if r[key] != want {
			on.Errorf("%s is %v, want %v", key, r[key], want)
		}
	}
}

func (on *trial) absoluteKey() {
	u := on.owner()
	w := u.worker(newTag())
	parent := u.data("hello")
	uuid := u.run(w.id, nil, dependency("/foo/bar", parent))
	bundle, _ := w.await(codalab.MessageRun, uuid)["bundle"].(object)
	deps, _ := bundle["dependencies"].([]any)
	if len(deps) != 1 {
		on.Fatalf("dependencies are %v", bundle["dependencies"])
	}
	dep, _ := deps[0].(object)
	for key, want := range map[string]any{
		"child_path": "/foo/bar", "child_uuid": uuid, "parent_uuid": parent, "parent_path": "", "parent_name": "stocktest", "location": nil,
	} {
		if got, ok := dep[key]; !ok || got != want {
			on.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}

func (on *trial) parents() {
	u := on.owner()
	w := u.worker(newTag())
	parent := u.run(w.id, nil)
	child := u.run(w.id, nil, dependency("p", parent))
	strict := u.run(w.id, nil, dependency("p", parent))
	lenient := u.run(w.id, object{"allow_failed_dependencies": true}, dependency("p", parent))
	w.begin(parent)
	u.isIn(child, codalab.StateCreated)
	u.kill(child).is(http.StatusOK)
	u.reaches(child, codalab.StateKilled)
	w.finish(parent, 3)
	u.reaches(parent, codalab.StateFailed)
	if b := u.reaches(strict, codalab.StateFailed); !strings.Contains(b.Metadata.String("failure_message"), "Parent bundles failed: "+parent) {
		on.Errorf("failure_message %q", b.Metadata.String("failure_message"))
	}
	w.await(codalab.MessageRun, lenient)
}

func (on *trial) tags() {
	u := on.owner()
	w, other := u.worker(newTag()), u.worker(newTag())
	plain := u.run(w.id, nil)
	keyed := u.run("tag="+w.id, nil)
	other.quiet(6 * time.Second)
	for _, uuid := range []string{w.offered(), w.offered()} {
		if uuid != plain && uuid != keyed {
			on.Errorf("%s was offered", uuid)
		}
	}
}

func (on *trial) exclusive() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run("", nil)
	w.quiet(6 * time.Second)
	w.tell["tag_exclusive"] = false
	w.await(codalab.MessageRun, uuid)
}

func (on *trial) beyondWorkers() {
	u := on.owner()
	w := u.worker(newTag())
	w.checkIn()
	uuid := u.run(w.id, object{"request_cpus": 5})
	w.refuses(uuid, "[4 CPUs (5 requested)]")
	// The server compares the queue as it was typed.
	keyed := u.run("tag="+w.id, object{"request_gpus": 1, "request_memory": "9g", "request_disk": "101g"})
	w.refuses(keyed, "["+w.id+" queue (tag="+w.id+" requested), 0 GPUs (1 requested), 8g memory (9g requested), 100g disk (101g requested)]")
	w.quiet(6 * time.Second)
	w.tell["cpus"] = 5
	w.await(codalab.MessageRun, uuid)
}

// refuses waits until a staged run's status says why this worker cannot have it; the status
// tells of other workers as well.
func (w *worker) refuses(uuid, why string) {
	w.Helper()
	w.shows(uuid, "refused with "+why, func(b codalab.Bundle) bool {
		status := b.Metadata.String("staged_status")
		return b.State == codalab.StateStaged && strings.Contains(status, why) &&
			strings.HasPrefix(status, "No worker can meet your bundle's resource requirements. Available resources: [")
	})
}

func (on *trial) deducted() {
	u := on.owner()
	w := u.worker(newTag())
	w.take(u.run(w.id, object{"request_cpus": 3, "request_memory": "6g", "request_disk": "99g"}))
	// What a run asks of the disk is not deducted.
	uuid := u.run(w.id, object{"request_cpus": 2, "request_memory": "3g", "request_disk": "99g"})
	w.refuses(uuid, "[1 CPUs (2 requested), 2g memory (3g requested)]")
}

func (on *trial) smallMemory() {
	u := on.owner()
	b := u.reaches(u.run(newTag(), object{"request_memory": "1m"}), codalab.StateFailed)
	on.equal("failure_message", b.Metadata.String("failure_message"), "Requested less memory (1m) than minimum limit (4m) by 3m")
}

func (on *trial) terminating() {
	u := on.owner()
	w := u.worker(newTag())
	w.tell["is_terminating"] = true
	uuid := u.run(w.id, nil)
	w.quiet(6 * time.Second)
	w.tell["is_terminating"], w.tell["exit_after_num_runs"] = false, 0
	w.quiet(6 * time.Second)
	w.tell["exit_after_num_runs"] = 1
	w.await(codalab.MessageRun, uuid)
}

func (on *trial) groupWorker() {
	u, c := on.owner(), on.colleague()
	// A group stays as long as a worker of it is remembered, so the trials of an owner share
	// one.
	name := "stocktest-" + u.name
	u.call("POST", "/groups", one("groups", object{"name": name}))
	group := u.call("GET", "/groups/"+name, nil).object().ID
	u.call("POST", "/groups/"+name+"/relationships/members", object{"data": object{"type": "users", "id": c.id}}).is(http.StatusOK)
	w := u.worker(newTag())
	w.tell["group_name"] = name
	private, shared := c.run(w.id, nil), c.run(w.id, nil)
	w.quiet(6 * time.Second)
	permission := one("bundle-permissions", object{"permission": 2}, object{"relationships": object{
		"bundle": object{"data": object{"type": "bundles", "id": shared}},
		"group":  object{"data": object{"type": "groups", "id": group}},
	}})
	c.call("POST", "/bundle-permissions", permission).is(http.StatusOK)
	w.begin(shared)
	w.finish(shared, 0)
	c.reaches(shared, codalab.StateReady)
	c.isIn(private, codalab.StateStaged)
	w.call("POST", w.path("start_bundle", private), object{"hostname": "x", "start_time": 1}).
		is(http.StatusForbidden, "User does not have permission to run bundle.")
}

func (on *trial) rootWorker() {
	if on.target.Root.Name == "" {
		on.Skip("this target has no root user")
	}
	w := on.login(on.target.Root).worker(newTag())
	u := on.owner()
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	w.succeed(uuid)
}

func (on *trial) workersInfo() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, object{"request_cpus": 3})
	w.take(uuid)
	var all struct{ Data []object }
	u.call("GET", "/workers/info", nil).into(&all)
	for _, info := range all.Data {
		if info["worker_id"] != w.id {
			continue
		}
		for key, want := range map[string]any{
			"user_id": u.id, "tag": w.id, "group_uuid": nil, "cpus": 4.0, "gpus": 0.0, "memory_bytes": float64(8 << 30),
			"free_disk_bytes": float64(100 << 30), "cpus_in_use": 3.0, "gpus_in_use": 0.0, "tag_exclusive": true,
		} {
			if info[key] != want {
				on.Errorf("%s is %v, want %v", key, info[key], want)
			}
		}
		if runs, _ := info["run_uuids"].([]any); len(runs) != 1 || runs[0] != uuid {
			on.Errorf("run_uuids is %v, want %s", info["run_uuids"], uuid)
		}
		return
	}
	on.Errorf("%s is not among %v", w.id, all.Data)
}
