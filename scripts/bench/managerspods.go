package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// The cluster of scripts/kubernetes: the address of this host on the network of its nodes, and the node whose pods may
// have user namespaces.
const (
	hostOfPods = "10.79.0.1"
	nodeOfPods = "n2"
)

// The images of the measured pods on the nodes.
const (
	workerImageName = "bench.example/worker:1"
	bareImageName   = "bench.example/bare:1"
)

// benchPods measures ten runs that need ten workers in pods: from the request for the first bundle to the first
// instruction of the last, with the image in the cache that the workers share. Ten bare pods take turns with them.
func benchPods(ctx context.Context, dir string) {
	const rounds, margin = 3, 3
	l := startLab(ctx, dir, hostOfPods)
	defer l.end()
	defer l.serveTo(ctx, hostOfPods)()
	defer l.loadImages(ctx)()
	k := makeNamespace(ctx)
	defer k.remove(ctx)
	claim := filepath.Join(dir, "volume")
	check(errors.Join(os.Mkdir(claim, 0o777), os.Chmod(claim, 0o777)))
	defer k.makeVolume(ctx, claim)()
	l.runsInPods(ctx, k, 1) // the image is in the cache
	var ours, bare []float64
	for range rounds {
		bare = append(bare, l.barePods(ctx, k))
		ours = append(ours, l.runsInPods(ctx, k, pilots))
	}
	base := median(bare)
	figure{
		name: "managers/ten_pods", value: median(ours), unit: "s", against: "kubectl_apply", base: base,
		bar: base + margin, barText: fmt.Sprintf("bare+%d=%.3g", margin, base+margin),
	}.print()
}

// makeVolume makes a claim "bench-claim" of a directory of this host, until the function that it returns is called.
func (k pods) makeVolume(ctx context.Context, dir string) (remove func()) {
	volume := fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": %[1]q},
 "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "", "hostPath": {"path": %[2]q}, "claimRef": {"namespace": %[1]q, "name": "bench-claim"}}}`, k.namespace, dir)
	kubectl(ctx, volume, "apply", "--filename=-")
	k.call(ctx, `{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "bench-claim"},
 "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "", "resources": {"requests": {"storage": "10Gi"}}}}`, "apply", "--filename=-")
	return func() { kubectl(ctx, "", "delete", "persistentvolume", k.namespace, "--wait=false") }
}

// loadImages gives the nodes the workers' image with the certificate of the lab's registry, and the image of the runs,
// until the function that it returns is called.
func (l *workerLab) loadImages(ctx context.Context) (unload func()) {
	archive := filepath.Join(l.dir, "worker-image.tar")
	build := exec.CommandContext(ctx, "go", "run", "-buildvcs=false", "./scripts/workerimage", "-platforms", "linux/amd64", "-out", archive)
	build.Stderr = os.Stderr
	check(build.Run())
	worker := withAuthority(openArchive(archive, filepath.Join(l.dir, "worker-image")), must(os.ReadFile(l.authority())))
	loaded := filepath.Join(l.dir, "images.tar")
	check(tarball.MultiWriteToFile(loaded, map[name.Tag]v1.Image{
		must(name.NewTag(workerImageName)): worker,
		must(name.NewTag(bareImageName)):   must(testsite.OpenImage(filepath.Join(l.dir, "image"))),
	}))
	script := os.Getenv("CLTEST_KUBERNETES")
	check(exec.CommandContext(ctx, script, "load", loaded).Run())
	return func() { _ = exec.Command(script, "unload", workerImageName, bareImageName).Run() } // a leftover has no meaning
}

// openArchive returns the image in an OCI archive, whose files it unpacks into a directory.
func openArchive(archive, dir string) v1.Image {
	file := must(os.Open(archive))
	for r := tar.NewReader(file); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check(err)
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeReg {
			check(os.MkdirAll(filepath.Dir(path), 0o755))
			check(os.WriteFile(path, must(io.ReadAll(r)), 0o644))
		}
	}
	check(file.Close())
	index := must(layout.ImageIndexFromPath(dir))
	for { // an archive may have an index in its index
		manifest := must(index.IndexManifest())
		first := manifest.Manifests[0]
		if !first.MediaType.IsIndex() {
			return must(index.Image(first.Digest))
		}
		index = must(index.ImageIndex(first.Digest))
	}
}

// withAuthority returns an image whose programs trust a certificate alone.
func withAuthority(img v1.Image, certificate []byte) v1.Image {
	const path = "lab.pem"
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	check(w.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(certificate)), Typeflag: tar.TypeReg}))
	_, err := w.Write(certificate)
	check(errors.Join(err, w.Close()))
	added := must(mutate.AppendLayers(img, must(tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	}))))
	config := must(added.ConfigFile()).Config
	config.Env = append(config.Env, "SSL_CERT_FILE=/"+path)
	return must(mutate.Config(added, config))
}

// barePods makes ten pods by one kubectl apply, and returns the time until the last one began.
func (l *workerLab) barePods(ctx context.Context, k pods) float64 {
	var all strings.Builder
	for i := range pilots {
		fmt.Fprintf(&all, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare-%d"}, "spec": {"restartPolicy": "Never", "nodeName": "",
 "nodeSelector": {"kubernetes.io/hostname": %q}, "terminationGracePeriodSeconds": 0, "containers": [{"name": "bare", "image": %q,
 "command": ["/bin/sh", "-c", "%s; sleep 300"], "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}]}}`+"\n---\n", i, nodeOfPods, bareImageName, stamp)
	}
	start := time.Now()
	last := start
	k.call(ctx, all.String(), "apply", "--filename=-")
	within, cancel := context.WithTimeout(ctx, runWithin)
	defer cancel()
	for i := range pilots {
		text := ""
		for !strings.HasSuffix(text, "\n") {
			check(pause.For(within, 50*time.Millisecond))
			out, _ := exec.CommandContext(within, "kubectl", "--namespace", k.namespace, "logs", fmt.Sprint("bare-", i)).Output() // it has not begun
			text = string(out)
		}
		if at := parseStamp(text); at.After(last) {
			last = at
		}
	}
	k.call(ctx, "", "delete", "pods", "--all", "--grace-period=0", "--force")
	return last.Sub(start).Seconds()
}

// runsInPods makes runs for as many workers, which a manager starts in pods, and returns the time until the last one
// began.
func (l *workerLab) runsInPods(ctx context.Context, k pods, n int) float64 {
	config := filepath.Join(l.dir, "kubeconfig")
	check(os.WriteFile(config, []byte(kubectl(ctx, "", "config", "view", "--raw", "--flatten")), 0o600))
	check(os.Chown(config, int(l.as.Uid), int(l.as.Gid)))
	manager := l.startProgram(
		ctx, "cl-worker-manager", "--server", l.address, "--min-workers", "0", "--max-workers", fmt.Sprint(n), "--worker-image", workerImageName,
		"--worker-fetch-private", hostOfPods, "--worker-idle-seconds", "5", "--worker-work-dir-prefix", "/work", "kubernetes", "--kubeconfig", config,
		"--namespace", k.namespace, "--nfs-volume-name", "bench", "--node-selector", "kubernetes.io/hostname="+nodeOfPods, "--device-resource", "smarter-devices/fuse",
		"--cpus", "1", "--memory-mb", "512", "--password-file", l.passwordFile(),
	)
	defer manager.end()
	check(pause.For(ctx, 3*time.Second)) // until it looks
	start := time.Now()
	last := start
	var uuids []string
	for range n {
		uuids = append(uuids, l.run(ctx, "", stamp+"; sleep 300"))
	}
	for _, uuid := range uuids {
		if at := parseStamp(l.awaitOutput(ctx, uuid)); at.After(last) {
			last = at
		}
	}
	check(l.user.KillBundles(ctx, uuids...))
	for _, uuid := range uuids {
		l.await(ctx, uuid, codalab.StateKilled)
	}
	within, cancel := context.WithTimeout(ctx, runWithin)
	defer cancel()
	for k.running(within) > 0 {
		check(pause.For(within, 200*time.Millisecond))
	}
	return last.Sub(start).Seconds()
}
