package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// pilots is the number of workers that the runs of benchPilots need.
const pilots = 10

// pilotShape returns the sbatch options of a pilot and a bare job.
func pilotShape() []string {
	return []string{"--partition", "cpu", "--account", "lab", "--time", "10:00"}
}

// benchPilots measures ten runs that need ten pilots: from the request for the first bundle to the first
// instruction of the last. Ten bare jobs of the same shape take turns with them.
func benchPilots(ctx context.Context, dir string) {
	const rounds, margin = 3, 3
	l := startLab(ctx, dir, hostOfNodes())
	defer l.end()
	defer l.serveTo(ctx, hostOfNodes())()
	prefix := filepath.Join(dir, "prefix")
	work := filepath.Join(prefix, testsite.User+"-codalab-SlurmBatchWorkerManager-scratch", "workdir")
	check(l.startWorker(ctx, "--work-dir", work, "--exit-after-num-runs", "1").cmd.Wait()) // the image is in the cache
	var ours, bare []float64
	for round := range rounds {
		bare = append(bare, l.bareJobs(ctx, round))
		ours = append(ours, l.runsOfPilots(ctx, prefix))
	}
	l.awaitNoJobs(ctx) // pilots wait for minutes for a server that is gone
	base := median(bare)
	figure{
		name: "worker/ten_pilots", value: median(ours), unit: "s", against: "bare_sbatch", base: base,
		bar: base + margin, barText: fmt.Sprintf("bare+%d=%.3g(stock:540)", margin, base+margin),
	}.print()
}

// hostOfNodes is this host's address on the network of the cluster's nodes (scripts/slurm-cluster).
func hostOfNodes() string {
	bridge := must(net.InterfaceByName("clslurm"))
	for _, a := range must(bridge.Addrs()) {
		if network, ok := a.(*net.IPNet); ok && network.IP.To4() != nil {
			return network.IP.String()
		}
	}
	check(fmt.Errorf("%s has no address", bridge.Name))
	return ""
}

// serveTo serves the lab's registry at an address of this host, for nodes, until stop is called. Workers use no plain HTTP
// beyond their own host.
func (l *workerLab) serveTo(ctx context.Context, host string) (stop func()) {
	address, path, _ := strings.Cut(l.user.image, "/")
	to := must(url.Parse("http://" + address))
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
	check(server.Listener.Close())
	server.Listener = must((&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0")))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{l.certify(host)}}
	server.StartTLS()
	l.user.image = server.Listener.Addr().String() + "/" + path
	return server.Close
}

// certify makes a certificate of an address, and writes it to the file that workers trust.
func (l *workerLab) certify(host string) tls.Certificate {
	key := must(ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.ParseIP(host)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	made := must(x509.CreateCertificate(cryptorand.Reader, template, template, key.Public(), key))
	check(os.WriteFile(l.authority(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made}), 0o644))
	return tls.Certificate{Certificate: [][]byte{made}, PrivateKey: key}
}

// pilotProgram makes a script that runs our worker with the built-in runtime, and returns its path. The
// worker has one CPU of this machine: the cluster's nodes have more CPUs than the machine, and do not bind
// jobs to them.
func (l *workerLab) pilotProgram() string {
	path := filepath.Join(l.dir, "pilot")
	worker := filepath.Join(filepath.Dir(must(os.Executable())), "cl-worker")
	check(os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nexport SSL_CERT_FILE=%s\nexec %s --bundle-runtime builtin --fetch-private %s --cpuset $((SLURM_JOB_ID %% %d)) \"$@\"\n", l.authority(), worker, labHost(), runtime.NumCPU()), 0o755))
	return path
}

// slurm runs one of Slurm's commands as researcher.
func (l *workerLab) slurm(ctx context.Context, args ...string) string {
	cmd := exec.CommandContext(ctx, slurmcluster.Chosen().Program(args[0]), args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: l.as}
	cmd.Env = slurmcluster.Chosen().Env()
	cmd.Dir = l.dir
	return strings.TrimSpace(output(cmd))
}

// jobName is in the names of this process's jobs.
func jobName() string { return fmt.Sprint("bench-", os.Getpid()) }

// awaitNoJobs waits until all jobs of this process have ended.
func (l *workerLab) awaitNoJobs(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, runWithin)
	defer cancel()
	for strings.Contains(l.slurm(within, "squeue", "--me", "--noheader", "--states=PD,R,CG", "--format=%j"), jobName()) {
		check(pause.For(within, 100*time.Millisecond))
	}
}

// bareJobs submits ten jobs one after the other, and returns the time until the last one began.
func (l *workerLab) bareJobs(ctx context.Context, round int) float64 {
	script := filepath.Join(l.dir, "bare.sh")
	check(os.WriteFile(script, []byte("#!/bin/sh\n"+stamp+"\nsleep 300\n"), 0o644))
	l.awaitNoJobs(ctx)
	start := time.Now()
	var jobs, outputs []string
	for i := range pilots {
		out := filepath.Join(l.dir, fmt.Sprintf("bare-%d-%d", round, i))
		args := append([]string{"sbatch", "--parsable", "--job-name", jobName(), "--cpus-per-task", "1", "--mem", "2048M", "--output", out}, pilotShape()...)
		jobs, outputs = append(jobs, l.slurm(ctx, append(args, script)...)), append(outputs, out)
	}
	last := start
	within, cancel := context.WithTimeout(ctx, runWithin)
	defer cancel()
	for _, out := range outputs {
		text := ""
		for !strings.HasSuffix(text, "\n") {
			check(pause.For(within, 20*time.Millisecond))
			data, _ := os.ReadFile(out) // it is not there yet
			text = string(data)
		}
		if at := parseStamp(text); at.After(last) {
			last = at
		}
	}
	l.slurm(ctx, append([]string{"scancel"}, jobs...)...)
	return last.Sub(start).Seconds()
}

// runsOfPilots makes ten runs for pilots that a manager starts. The pilots end when they are idle.
func (l *workerLab) runsOfPilots(ctx context.Context, prefix string) float64 {
	l.awaitNoJobs(ctx)
	args := []string{
		"--server", l.address, "--min-workers", "0", "--max-workers", fmt.Sprint(pilots), "--worker-work-dir-prefix", prefix,
		"--worker-idle-seconds", "5", "--worker-executable", l.pilotProgram(), "slurm-batch", "--job-name", jobName(), "--cpus", "1", "--gpus", "0", "--memory-mb", "2048",
		"--slurm-work-dir", filepath.Join(l.dir, "pilots"), "--password-file", l.passwordFile(),
	}
	manager := l.startProgram(ctx, "cl-worker-manager", append(args, pilotShape()...)...)
	defer manager.end()
	check(pause.For(ctx, 2*time.Second)) // until it looks
	start := time.Now()
	var uuids []string
	for range pilots {
		uuids = append(uuids, l.run(ctx, "", stamp+"; sleep 300"))
	}
	last := start
	for _, uuid := range uuids {
		if at := parseStamp(l.awaitOutput(ctx, uuid)); at.After(last) {
			last = at
		}
	}
	check(l.user.KillBundles(ctx, uuids...))
	for _, uuid := range uuids {
		l.await(ctx, uuid, codalab.StateKilled)
	}
	return last.Sub(start).Seconds()
}
