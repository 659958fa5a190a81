package apptainerexec

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
)

// runContainer runs Apptainer. It tells Apptainer's container to stop, and in the end it kills
// Apptainer's remaining processes, such as the squashfuse of an Apptainer that was killed.
func runContainer(p *initproc.Process) (code int, err error) {
	c := &containerInit{process: p}
	if err := p.ReadDetails(&c.spec); err != nil {
		return 0, err
	}
	c.root = &initproc.Root{RootSpec: c.Root, Process: p}
	if err := p.EnterPrivateDir(); err != nil {
		return 0, err
	}
	if c.Plain {
		err = p.AdoptOrphans()
	} else {
		err = p.MountProc()
	}
	if err != nil {
		return 0, err
	}
	report, err := enter.MakeReport(p.PrivateDir)
	if err != nil {
		return 0, err
	}
	args, err := c.prepare(report)
	if err != nil {
		return 0, err
	}
	control, err := c.start(args)
	if err != nil {
		return 0, err
	}
	defer func() { _ = control.Close() }()
	status, killed, err := c.supervise(control, report)
	r := enter.ReadReport(report)
	if r.Began {
		p.Begin()
	}
	if err != nil {
		return 0, err
	}
	if killed {
		return 128 + int(syscall.SIGKILL), nil
	}
	code, err = r.Outcome("apptainer", status, p.StderrHead)
	if err == nil && code != 0 && initproc.IsMountLost() {
		return 0, c.root.AwaitLoss()
	}
	return code, explainCompression(err)
}

// explainCompression describes the failure of an Apptainer that got the SIF and cannot read its
// compression (pkg/image/squashfs.go: CheckSquashfsHeader).
func explainCompression(err error) error {
	if err == nil || !strings.Contains(err.Error(), "unknown compression algorithm") {
		return err
	}
	return container.HostErrorf("this node's Apptainer cannot read how the image is compressed (zstd takes Apptainer 1.4, " +
		"or squashfuse, user namespaces and /dev/fuse): the site has to set image.compression to gzip")
}

// start starts Apptainer and returns the control of package enter.
func (c *containerInit) start(args []string) (control *os.File, err error) {
	r, control, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start Apptainer: %w", err)
	}
	defer func() { _ = r.Close() }()
	c.program, err = c.process.StartBounded(args, &syscall.ProcAttr{
		Dir:   "/",
		Env:   Environment(c.process.PrivateDir),
		Files: c.process.Stdio(r.Fd()),
	}, false)
	if err != nil {
		_ = control.Close()
		return nil, err
	}
	if err := json.NewEncoder(control).Encode(c.Command); err != nil && !errors.Is(err, unix.EPIPE) {
		_ = control.Close()
		return nil, fmt.Errorf("start Apptainer: %w", err)
	}
	return control, nil
}

// Environment returns the environment of Apptainer itself, which makes it write its own files to
// dir, and none to the user's home.
func Environment(dir string) []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", "HOME=" + dir,
		"APPTAINER_CONFIGDIR=" + dir, "APPTAINER_TMPDIR=" + dir, "SINGULARITY_TMPDIR=" + dir,
	}
}

func (c *containerInit) supervise(control *os.File, report string) (status syscall.WaitStatus, killed bool, err error) {
	stop := c.process.Stop
	var kill <-chan time.Time
	tick := time.NewTicker(enter.ReportPause)
	defer tick.Stop()
	begun := tick.C
	for {
		select {
		case <-begun:
			if enter.ReadReport(report).Began {
				begun = nil
				tick.Stop()
				c.process.Begin()
			}
		case <-stop:
			stop = nil
			_, _ = control.WriteString("{}\n") // fails if the container has ended
			timer := time.NewTimer(c.process.KillGrace + time.Second)
			defer timer.Stop()
			kill = timer.C
		case <-kill:
			return 0, true, nil
		case d, ok := <-c.process.Deaths:
			if !ok {
				return 0, false, errors.New("the end of apptainer was missed")
			}
			if err := c.root.Lost(d); err != nil {
				return 0, false, err
			}
			if d.PID == c.program {
				return d.Status, false, nil
			}
		}
	}
}
