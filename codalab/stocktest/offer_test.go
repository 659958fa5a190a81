package stocktest_test

import (
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func (on *trial) runMessage() {
	u, w := on.ownerWithWorker()
	uuid := u.run(w.id, object{"request_time": "1m", "request_memory": "1g", "request_disk": "1g", "request_cpus": 2})
	var a answer
	testenv.Await(on, uuid+" is offered", func() bool {
		a = w.post()
		return strings.Contains(string(a.body), uuid)
	}, &a)
	on.wantEqual("the answer's type", a.header.Get("Content-Type"), "application/json")
	message := a.body[1 : len(a.body)-1]
	for key, want := range map[string]string{
		"cpus": "2", "gpus": "0", "time": "60.0", "memory": "1073741824", "disk": "1073741824",
		"docker_image": `"busybox:latest"`, "network": "true", "tag": `"` + w.id + `"`, "tag_exclusive": "false", "runs_left": "null",
	} {
		on.wantEqual("resources."+key, raw(message, "resources", key), want)
	}
	for key, want := range map[string]string{
		"uuid": `"` + uuid + `"`, "bundle_type": `"run"`, "owner_id": `"` + u.id + `"`, "command": `"echo hello"`,
		"state": `"starting"`, "frozen": "null", "is_anonymous": "false", "dependencies": "[]", "location": "null",
	} {
		on.wantEqual("bundle."+key, raw(message, "bundle", key), want)
	}
	on.wantEqual("type", raw(message, "type"), `"run"`)
	on.wantEqual("request_time", raw(message, "bundle", "metadata", "request_time"), `"1m"`)
	on.wantEqual("exclude_patterns", raw(message, "bundle", "metadata", "exclude_patterns"), "[]")
	on.wantEqual("state", string(w.bundle(uuid).State), "starting")
}

func (on *trial) wantEqual(what, got, want string) {
	on.Helper()
	if got != want {
		on.Errorf("%s is %s, want %s", what, got, want)
	}
}

func (on *trial) defaultResources() {
	u, w := on.ownerWithWorker()
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
	u, w := on.ownerWithWorker()
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
	u, w := on.ownerWithWorker()
	parent := u.run(w.id, nil)
	child := u.run(w.id, nil, dependency("p", parent))
	strict := u.run(w.id, nil, dependency("p", parent))
	lenient := u.run(w.id, object{"allow_failed_dependencies": true}, dependency("p", parent))
	w.startRunning(parent)
	u.wantState(child, codalab.StateCreated)
	u.kill(child).wantStatus(http.StatusOK)
	u.awaitState(child, codalab.StateKilled)
	w.reportEnd(parent, 3)
	u.awaitState(parent, codalab.StateFailed)
	if b := u.awaitState(strict, codalab.StateFailed); !strings.Contains(b.Metadata.String("failure_message"), "Parent bundles failed: "+parent) {
		on.Errorf("failure_message %q", b.Metadata.String("failure_message"))
	}
	w.await(codalab.MessageRun, lenient)
}

func (on *trial) tags() {
	u := on.owner()
	w, other := u.worker(newTag()), u.worker(newTag())
	plain := u.run(w.id, nil)
	keyed := u.run("tag="+w.id, nil)
	other.wantNoMessage(6 * time.Second)
	for _, uuid := range []string{w.offered(), w.offered()} {
		if uuid != plain && uuid != keyed {
			on.Errorf("%s was offered", uuid)
		}
	}
}

func (on *trial) exclusive() {
	u, w := on.ownerWithWorker()
	uuid := u.run("", nil)
	w.wantNoMessage(6 * time.Second)
	w.offer["tag_exclusive"] = false
	w.await(codalab.MessageRun, uuid)
}

func (on *trial) terminating() {
	u, w := on.ownerWithWorker()
	w.offer["is_terminating"] = true
	uuid := u.run(w.id, nil)
	w.wantNoMessage(6 * time.Second)
	w.offer["is_terminating"], w.offer["exit_after_num_runs"] = false, 0
	w.wantNoMessage(6 * time.Second)
	w.offer["exit_after_num_runs"] = 1
	w.await(codalab.MessageRun, uuid)
}

func (on *trial) groupWorker() {
	if !on.site.groups {
		on.Skip("this target has no groups")
	}
	u, c := on.owner(), on.colleague()
	// A group stays as long as a worker of it is remembered, so the trials of an owner share
	// one.
	name := "stocktest-" + u.name
	u.call("POST", "/groups", one("groups", object{"name": name}))
	group := u.call("GET", "/groups/"+name, nil).object().ID
	u.call("POST", "/groups/"+name+"/relationships/members", object{"data": object{"type": "users", "id": c.id}}).wantStatus(http.StatusOK)
	w := u.worker(newTag())
	w.offer["group_name"] = name
	private, shared := c.run(w.id, nil), c.run(w.id, nil)
	w.wantNoMessage(6 * time.Second)
	permission := one("bundle-permissions", object{"permission": 2}, object{"relationships": object{
		"bundle": object{"data": object{"type": "bundles", "id": shared}},
		"group":  object{"data": object{"type": "groups", "id": group}},
	}})
	c.call("POST", "/bundle-permissions", permission).wantStatus(http.StatusOK)
	w.startRunning(shared)
	w.reportEnd(shared, 0)
	c.awaitState(shared, codalab.StateReady)
	c.wantState(private, codalab.StateStaged)
	w.call("POST", w.path("start_bundle", private), object{"hostname": "x", "start_time": 1}).
		wantStatus(http.StatusForbidden, "User does not have permission to run bundle.")
}

func (on *trial) rootWorker() {
	if on.site.root.Name == "" {
		on.Skip("this target has no root user")
	}
	w := on.login(on.site.root).worker(newTag())
	u := on.owner()
	uuid := u.run(w.id, nil)
	w.startRunning(uuid)
	w.finishReady(uuid)
}

func (on *trial) beyondWorkers() {
	u, w := on.ownerWithWorker()
	for _, request := range []object{{"request_cpus": 5}, {"request_gpus": 1}, {"request_memory": "9g"}, {"request_disk": "101g"}} {
		u.run(w.id, request)
	}
	w.wantNoMessage(6 * time.Second)
	w.offer["cpus"] = 5
	w.offered()
	w.wantNoMessage(6 * time.Second)
}

func (on *trial) deducted() {
	u, w := on.ownerWithWorker()
	w.awaitAndClaim(u.run(w.id, object{"request_cpus": 3, "request_memory": "6g", "request_disk": "99g"}))
	u.run(w.id, object{"request_cpus": 2})
	u.run(w.id, object{"request_memory": "3g"})
	w.wantNoMessage(6 * time.Second)
	w.awaitAndClaim(u.run(w.id, object{"request_disk": "99g"})) // disk is not deducted
}
